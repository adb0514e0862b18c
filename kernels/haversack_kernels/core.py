"""The list search behind ``haversack_kernels.knapsack``: exact, sparse, whatever the capacity.

The search changes the break solution chunk by chunk (``haversack_kernels.cores``) and keeps the
list of states that no other state beats and that may still beat the best gain: the primal-dual list
DP of the public literature, as in Pisinger's minknap (1997). Mostly a few dozen chunks decide.

Where lists grow they are paired with a second one, of changes to the chunks that come next: that
finds what fills the room exactly among the products of both (as Horowitz and Sahni 1974 halve a
search). What order to go in, and how far, is for ``haversack_kernels.phases`` to say.
"""

from typing import NamedTuple

from haversack_kernels._jit import Int64, Signals, jit
from haversack_kernels.bounds import Quota, Rates, can_beat
from haversack_kernels.cores import Core, change, new_core, rates
from haversack_kernels.states import (
    Best,
    Lists,
    Trail,
    bound_of_all,
    merge,
    new_lists,
    new_trail,
    pair,
    thin,
    with_nodes,
    with_space,
)

PROVEN, STOPPED, CANCELLED = range(3)

FIRST_PAIRING, NEXT_PAIRING, LAST_PAIRING = 1 << 10, 4, 1 << 18
"""Length of the list that is paired first, how much longer it is the next time, and the last."""

ALL = 2**60
"""As a limit: none."""

NO_BOUND = 2**62


class Outcome(NamedTuple):
    """Say how many copies of each run are taken, how it ended, and after how many states."""

    taken: Int64
    gain: int
    upper_bound: int
    status: int
    states: int


class Front(NamedTuple):
    """Hold the list of ``length`` states from ``begin`` on, and which chunk is changed next.

    Not ``whole``, it has been thinned.
    """

    lists: Lists
    begin: int
    length: int
    at: int
    best: Best
    trail: Trail
    nodes: int
    looked: int
    whole: bool


class Limits(NamedTuple):
    """Say how far to go: until the list is longer than ``length``, or past ``states`` looked at.

    Not ``alone``, any other chunk may still be changed too, and bounds are those of the break. A
    list twice as long as ``width`` is thinned to it. (In a tuple, for numba compiles anew for every
    number that is written out in a call.)
    """

    alone: bool
    length: int
    states: int
    width: int


@jit
def expand(
    size: Int64,
    gain: Int64,
    copies: Int64,
    capacity: int,
    order: Int64,
    quota: Quota,
    known: Int64,
    state_limit: int,
    width: int,
    signals: Signals,
) -> Outcome:
    """Change the break solution of this order chunk by chunk until no state can beat the best.

    ``known`` has shape ``(runs,)``: the copies that the best known solution takes. A list twice as
    long as ``width`` is thinned to it; then nothing is proven, and the upper bound is NO_BOUND.
    """
    core = new_core(size, gain, copies, order, capacity, quota)
    taken = _filled(core, size, copies)
    if _gain_of(taken, gain) < _gain_of(known, gain):
        taken = known.copy()
    best = Best(_gain_of(taken, gain), -1, -1)
    if best.gain < core.gain:
        best = Best(core.gain, 0, -1)
    limits = Limits(True, FIRST_PAIRING, state_limit, width)
    front = _grow(core, _start(core, 0, best, new_trail(128), 1), limits, signals)
    while front.length > limits.length:
        front = _paired(core, front, limits, signals)
        longer = limits.length * NEXT_PAIRING if limits.length < LAST_PAIRING else state_limit
        limits = Limits(True, longer, state_limit, width)
        front = _grow(core, front, limits, signals)
    _trace(core, front.trail, front.best, taken)
    bound, status = front.best.gain, PROVEN
    if front.length > 0 and front.at < core.chunks.size.size:
        status = CANCELLED if signals.cancel[0] != 0 else STOPPED
        ahead = rates(core, front.at)
        bound = bound_of_all(front.lists, front.begin, front.length, bound, core.quota, ahead)
    if not front.whole:
        bound, status = NO_BOUND, max(status, STOPPED)
    return Outcome(taken, front.best.gain, bound, status, front.looked)


@jit
def _gain_of(taken: Int64, gain: Int64) -> int:
    total = 0
    for run in range(gain.size):
        total += taken[run] * gain[run]
    return total


@jit
def _filled(core: Core, size: Int64, copies: Int64) -> Int64:
    """Return the copies taken by the break solution and, densest first, what still fits."""
    taken, room = core.base.copy(), core.room
    for run in range(size.size):
        more = min(copies[run] - taken[run], room // size[run])
        taken[run] += more
        room -= more * size[run]
    return taken


@jit
def _start(core: Core, at: int, best: Best, trail: Trail, nodes: int) -> Front:
    """Return the list of the break solution alone, from which the chunk at ``at`` is changed."""
    lists = new_lists(256)
    lists.weight[0], lists.gain[0] = -core.room, core.gain
    lists.copies[0], lists.node[0] = core.copies, 0
    return Front(lists, 0, 1, at, best, trail, nodes, 0, True)


@jit
def _grow(core: Core, front: Front, limits: Limits, signals: Signals) -> Front:
    """Change chunk after chunk until the list is empty or a limit is reached."""
    lists, begin, count, at, best, trail, nodes, looked, whole = front
    every = rates(core, 0)
    while 0 < count <= limits.length:
        at = next_helpful(core, at, best.gain, every)
        past_limit = looked + 2 * count > limits.states
        if at == core.chunks.size.size or past_limit or signals.cancel[0] != 0:
            break
        if lists.weight.size < 4 * count + 2:
            lists, begin = with_space(lists, begin, count), 0
        if trail.parent.size <= nodes + count:
            trail = with_nodes(trail, nodes, count + 1)
        looked += 2 * count
        signals.steps[0] += 1
        changed, ahead = change(core, at), at + 1 if limits.alone else 0
        removable = core.removable[ahead] + (0 if limits.alone else min(changed.weight, 0))
        count, nodes, best = merge(
            lists,
            begin,
            count,
            changed,
            removable,
            core.quota,
            rates(core, ahead),
            best,
            trail,
            nodes,
        )
        begin = lists.weight.size // 2 - begin
        at += 1
        if count > 2 * limits.width:
            count = thin(lists, begin, count, limits.width, core.quota, rates(core, at))
            whole = False
    return Front(lists, begin, count, at, best, trail, nodes, looked, whole)


@jit
def next_helpful(core: Core, at: int, best: int, every: Rates) -> int:
    """Return the next place whose change a better solution may have, whatever else changes."""
    size, gain, copies, sign = (
        core.chunks.size,
        core.chunks.gain,
        core.chunks.copies,
        core.chunks.sign,
    )
    while at < size.size:
        weight, more = sign[at] * size[at] - core.room, sign[at] * gain[at]
        count = core.copies + sign[at] * copies[at]
        if can_beat(weight, core.gain + more, count, best, core.quota, every):
            break
        at += 1
    return at


@jit
def _paired(core: Core, front: Front, limits: Limits, signals: Signals) -> Front:
    """Pair the list with one of about its length, of changes to the chunks that come next."""
    lists, begin, count, at, best, trail, nodes, looked, whole = front
    others = _start(core, at, best, trail, nodes)
    most = min(4 * count, limits.states - looked)
    others = _grow(core, others, Limits(False, count, most, ALL), signals)
    looked += others.looked + count
    best = pair(
        lists,
        begin,
        count,
        others.lists,
        others.begin,
        others.length,
        core.room,
        core.gain,
        others.best,
    )
    nodes = others.nodes if best.gain > front.best.gain else nodes
    return Front(lists, begin, count, at, best, others.trail, nodes, looked, whole)


@jit
def _trace(core: Core, trail: Trail, best: Best, taken: Int64) -> None:
    """Write the copies that the best takes: what is taken at the break, and its changes."""
    if best.node < 0:
        return
    for run in range(taken.size):
        taken[run] = core.base[run]
    for start in (best.node, best.other):
        node = start
        while node > 0:
            at = trail.chunk[node]
            taken[core.chunks.run[at]] += core.chunks.sign[at] * core.chunks.copies[at]
            node = trail.parent[node]
