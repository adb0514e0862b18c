"""The search of ``haversack_kernels.phases`` for gains that sum up to more than int64 can add.

The compiled search goes first, over gains without their lowest bits, rounded up: its bound holds,
and its subset is next to the best. What is left to prove is searched in Python integers, without
the quota and the pairing, and each state counts for a hundred. Knows nothing of candidates.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from haversack_kernels import phases, quota
from haversack_kernels._jit import Int64, Signals
from haversack_kernels.core import CANCELLED, PROVEN, STOPPED, Outcome

SLOWER = 100

ROUNDED_BITS = 61
"""Bits that the sum of rounded gains has: with what rounding up adds it stays below 2^62."""

MOST_ROOM = 1 << 62
"""Capacities from here on are beyond the compiled search, whatever the gains."""


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
    near = _rounded(size, gain, copies, capacity, state_limit // 2, signals)
    ahead, room, total = _break_solution(size.tolist(), gain.tolist(), copies.tolist(), capacity)
    base = np.bincount([copy.run for copy in ahead.removed], minlength=size.size)
    start = _State(-room, total, None)
    best = start if total >= near.gain else _State(0, near.gain, None)
    states, looked, status = [start], near.states, PROVEN
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
    bound = min(near.upper_bound, max([best.gain, *(_bound(state, ahead) for state in states)]))
    taken = near.taken if best.gain == near.gain else _trace(best, base)
    status = PROVEN if status == STOPPED and bound == best.gain else status
    return Outcome(taken, best.gain, bound if status else best.gain, status, looked)


def _rounded(
    size: Int64, gain: Int64, copies: Int64, capacity: int, state_limit: int, signals: Signals
) -> Outcome:
    """Search with gains rounded up to fewer bits; return the true gain, and a bound on the best."""
    gains = _total(gain, copies)
    if capacity >= MOST_ROOM:
        return Outcome(np.zeros_like(copies), 0, gains, STOPPED, 0)
    shift = max(gains.bit_length() - ROUNDED_BITS, 0)
    rounded = -(-gain >> shift)
    order = quota.order_at(size, rounded, 0)  # rounding may have changed it
    found = phases.search(
        size[order], rounded[order], copies[order], capacity, state_limit, signals
    )
    taken = np.empty_like(found.taken)
    taken[order] = found.taken
    bound = found.upper_bound << shift
    return Outcome(taken, _total(gain, taken), bound, found.status, found.states)


def _total(gain: Int64, copies: Int64) -> int:
    return sum(g * c for g, c in zip(gain.tolist(), copies.tolist(), strict=True))


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
