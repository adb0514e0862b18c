"""The list search behind ``haversack_kernels.knapsack``: exact, sparse, whatever the capacity.

The densest candidates are taken until one does not fit: the break solution, close to the optimum.
The search changes it from the break outwards, in turn adding what was left out and removing what
was taken, and keeps the list of states that no other state beats and that may still beat the best
gain (the primal-dual list DP of the public literature, as in Pisinger's minknap). Mostly a few
dozen candidates around the break decide.

Candidates come as *runs* of equal ones, densest first; a run is cut into *chunks* of 1, 2, 4, ...
copies. Knows nothing of candidates' indices; the list itself is in ``haversack_kernels.states``.
"""

from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import MAX_INT64, CancelFlag, Int64, jit
from haversack_kernels.states import (
    ABOVE,
    HUGE,
    SLACK,
    Best,
    Change,
    Trail,
    bound_of_all,
    merge,
    new_states,
    new_trail,
    slopes,
    with_nodes,
    with_space,
)

PROVEN, STOPPED, OVERFLOW, CANCELLED = range(4)


class Outcome(NamedTuple):
    """Say how many copies of each run are taken, how it ended, and after how many states."""

    taken: Int64
    gain: int
    upper_bound: int
    status: int
    states: int


class Chunks(NamedTuple):
    """Hold chunks of ``copies`` of one ``run``, densest first; the first ``center`` are taken."""

    size: Int64
    gain: Int64
    run: Int64
    copies: Int64
    center: int


@jit
def search(
    size: Int64,
    gain: Int64,
    copies: Int64,
    capacity: int,
    free_gain: int,
    only_add: bool,
    state_limit: int,
    cancel: CancelFlag,
) -> Outcome:
    """Search the runs for the largest gain within ``capacity``, on top of ``free_gain``.

    Arrays have shape ``(runs,)``, sizes and gains >= 1. With ``only_add`` the search starts from
    nothing, so that every state fits and a gain above int64 is an overflow of the optimum; without,
    the sum of all gains must be within int64.
    """
    usable, base = np.minimum(copies, capacity // size), np.zeros(size.size, np.int64)
    if only_add and _overflows_alone(gain, usable):
        return Outcome(base, 0, 0, OVERFLOW, 0)
    room, base_gain = capacity, free_gain
    if not only_add:
        room, base_gain = _take_until_break(size, gain, usable, capacity, free_gain, base)
    filled = base.copy()
    best = Best(_fill(size, gain, usable, room, base_gain, filled), -1)
    if best.gain < 0:
        return Outcome(base, 0, 0, OVERFLOW, 0)
    chunks = _chunks(size, gain, usable, base)
    best, bound, trail, status, looked = _expand(chunks, room, base_gain, best, state_limit, cancel)
    if best.node >= 0:
        filled = base
        _trace(chunks, trail, best.node, filled)
    return Outcome(filled, best.gain, bound, status, looked)


@jit
def _overflows_alone(gain: Int64, usable: Int64) -> bool:
    """Tell whether the usable copies of some run, which fit together, gain more than int64."""
    beyond = False
    for run in range(gain.size):
        if usable[run] > 0:
            beyond = beyond or bool(gain[run] > MAX_INT64 // usable[run])
    return beyond


@jit
def _take_until_break(
    size: Int64, gain: Int64, copies: Int64, room: int, total: int, taken: Int64
) -> tuple[int, int]:
    """Take the densest until one does not fit; return the room left and the gain."""
    for run in range(size.size):
        taken[run] = min(copies[run], room // size[run])
        room -= taken[run] * size[run]
        total += taken[run] * gain[run]
        if taken[run] < copies[run]:
            break
    return room, total


@jit
def _fill(size: Int64, gain: Int64, copies: Int64, room: int, total: int, taken: Int64) -> int:
    """Add, densest first, what still fits; return the gain, negative on overflow."""
    for run in range(size.size):
        more = min(copies[run] - taken[run], room // size[run])
        taken[run] += more
        room -= more * size[run]
        total += more * gain[run]
        if total < 0:
            break
    return total


@jit
def _chunks(size: Int64, gain: Int64, copies: Int64, taken: Int64) -> Chunks:
    """Cut what is taken, then what is left out, into chunks; the break run has some of both."""
    run_of = np.empty(copies.sum(), np.int64)
    chunk = np.empty(copies.sum(), np.int64)
    center = _cut(taken, run_of, chunk, 0)
    used = _cut(copies - taken, run_of, chunk, center)
    run_of, chunk = run_of[:used], chunk[:used]
    return Chunks(size[run_of] * chunk, gain[run_of] * chunk, run_of, chunk, center)


@jit
def _cut(copies: Int64, run_of: Int64, chunk: Int64, used: int) -> int:
    """Append chunks of 1, 2, 4, ... copies and a rest: together they form any number of copies."""
    for run in range(copies.size):
        left, power = copies[run], 1
        while left > 0:
            run_of[used], chunk[used] = run, min(power, left)
            left -= power
            power *= 2
            used += 1
    return used


@jit
def _expand(
    chunks: Chunks, room: int, base_gain: int, best: Best, state_limit: int, cancel: CancelFlag
) -> tuple[Best, int, Trail, int, int]:
    """Change chunk after chunk, from the center outwards, until no state can beat the best.

    Returns the best, an upper bound, the trail, the status and the number of states looked at.
    """
    size, density = chunks.size, chunks.gain / chunks.size
    take, drop = chunks.center, chunks.center - 1
    removable = size[:take].sum()
    price = density[take] if take < size.size else 0.0
    states, count = new_states(1), 1
    states.weight[0], states.gain[0], states.node[0] = -room, base_gain, 0
    trail, nodes, spare = new_trail(64), 1, new_states(128)
    status, looked = PROVEN, 0
    while count > 0 and (take < size.size or drop >= 0):
        if cancel[0] != 0 or looked + 2 * count > state_limit:
            status = CANCELLED if cancel[0] != 0 else STOPPED
            break
        adds = drop < 0 or (take < size.size and take + drop < 2 * chunks.center)
        chunk = take if adds else drop
        if adds:
            take += 1
            change = Change(chunk, size[chunk], chunks.gain[chunk])
        else:
            drop -= 1
            change = Change(chunk, -size[chunk], -chunks.gain[chunk])
            removable -= size[chunk]
        if _is_settled(change, price, room, best.gain - base_gain):
            continue
        looked += 2 * count
        spare, trail = with_space(spare, 2 * count), with_nodes(trail, nodes, count)
        slope = slopes(density, take, drop)
        count, nodes, best = merge(
            states, count, change, removable, slope, best, spare, trail, nodes
        )
        states, spare = spare, states
        if count < 0:
            status = OVERFLOW
    bound = bound_of_all(states, max(count, 0), best.gain, slopes(density, take, drop))
    return best, bound if status == STOPPED else best.gain, trail, status, looked


@jit
def _is_settled(change: Change, price: float, room: int, needed: int) -> bool:
    """Tell whether no solution with this change gains more than ``needed`` over the break solution.

    With the break density as the price of a unit, filling the room gains room * price at most, and
    every change costs the difference between its gain and its price.
    """
    paid = change.weight * price
    cost = abs(change.gain - paid) - abs(change.gain + paid) * SLACK
    left = room * price * ABOVE - cost
    return left < 0.0 or (left < HUGE and int(left) <= needed)


@jit
def _trace(chunks: Chunks, trail: Trail, node: int, taken: Int64) -> None:
    """Apply the changes that lead to ``node`` to the copies taken by the break solution."""
    while node > 0:
        chunk = trail.chunk[node]
        copies = chunks.copies[chunk]
        taken[chunks.run[chunk]] += copies if chunk >= chunks.center else -copies
        node = trail.parent[node]
