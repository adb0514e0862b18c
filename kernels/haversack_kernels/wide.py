"""The search of ``haversack_kernels.phases`` for gains that sum up to more than int64 can add.

In Python integers, without the quota and the pairing, and each state counts for a hundred: for sums
that no run of nanoseconds reaches it only has to be right. Knows nothing of candidates.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import Int64, Signals
from haversack_kernels.core import CANCELLED, PROVEN, STOPPED, Outcome

SLOWER = 100


class _Copy(NamedTuple):
    run: int
    sign: int  # -1 where the break solution has it
    size: int
    gain: int


class _State(NamedTuple):
    weight: int  # its size less the capacity
    gain: int
    changed: tuple[_Copy, "_State"] | None


class _Ahead(NamedTuple):
    """Hold the copies that may still be added and removed, nearest to the break last."""

    added: list[_Copy]
    removed: list[_Copy]


def search(
    size: Int64,
    gain: Int64,
    copies: Int64,
    capacity: int,
    state_limit: int,
    signals: Signals,
    allowance: Callable[[], int] | None = None,
) -> Outcome:
    """Search the runs for the largest gain within ``capacity``, as ``phases.search`` does.

    ``allowance`` is asked before anything else.
    """
    state_limit = state_limit if allowance is None else min(allowance(), state_limit)
    ahead, room, total = _break_solution(size.tolist(), gain.tolist(), copies.tolist(), capacity)
    base = np.bincount([copy.run for copy in ahead.removed], minlength=size.size)
    best = _State(-room, total, None)
    states, looked, status = [best], 0, PROVEN
    while states and (ahead.added or ahead.removed):
        if signals.cancel[0] or looked + 2 * SLOWER * len(states) > state_limit:
            status = CANCELLED if signals.cancel[0] else STOPPED
            break
        looked += 2 * SLOWER * len(states)
        signals.steps[0] += 1
        adds = len(ahead.added) >= len(ahead.removed)
        copy = (ahead.added if adds else ahead.removed).pop()
        states = _undominated(states + [_changed(state, copy) for state in states])
        best = max([best, *(s for s in states if s.weight <= 0)], key=lambda state: state.gain)
        states = [state for state in states if _bound(state, ahead) > best.gain]
    bound = max([best.gain, *(_bound(state, ahead) for state in states)])
    return Outcome(_trace(best, base), best.gain, bound if status else best.gain, status, looked)


def _break_solution(
    size: list[int], gain: list[int], copies: list[int], room: int
) -> tuple[_Ahead, int, int]:
    """Take the densest until one does not fit; return what is left, the room and the gain."""
    taken, left_out, total = list[_Copy](), list[_Copy](), 0
    for run in range(len(size)):
        fits = 0 if left_out else min(copies[run], room // size[run])
        room, total = room - fits * size[run], total + fits * gain[run]
        taken += [_Copy(run, -1, size[run], gain[run])] * fits
        left_out += [_Copy(run, 1, size[run], gain[run])] * (copies[run] - fits)
    return _Ahead(left_out[::-1], taken), room, total


def _changed(state: _State, copy: _Copy) -> _State:
    weight, gain = state.weight + copy.sign * copy.size, state.gain + copy.sign * copy.gain
    return _State(weight, gain, (copy, state))


def _undominated(states: list[_State]) -> list[_State]:
    """Return the states lightest first, without those that a lighter one beats."""
    states.sort(key=lambda state: (state.weight, -state.gain))
    kept: list[_State] = []
    for state in states:
        if not kept or state.gain > kept[-1].gain:
            kept.append(state)
    return kept


def _bound(state: _State, ahead: _Ahead) -> int:
    """Return Dantzig's bound on the state, -1 if it can never fit."""
    if state.weight > 0:
        if not ahead.removed:
            return -1
        cheapest = ahead.removed[-1]
        return state.gain - -(-state.weight * cheapest.gain // cheapest.size)
    if not ahead.added:
        return state.gain
    densest = ahead.added[-1]
    return state.gain + -state.weight * densest.gain // densest.size


def _trace(best: _State, base: Int64) -> Int64:
    taken, state = base.copy(), best
    while state.changed is not None:
        copy, state = state.changed
        taken[copy.run] += copy.sign
    return taken
