"""The list of states of ``haversack_kernels.core``: merged, pruned, and traced back.

A state's weight is its size minus the capacity, so it fits if its weight is <= 0. A list holds the
states lightest first, each of more gain than the one before: no state beats another in both.
Bounds are Dantzig's, as floats; ABOVE and BELOW cover every rounding, so they are sound up to 2^62
and only less sharp above 2^48. Knows nothing of runs, copies or candidates.
"""

import math
from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import MAX_INT64, Float64, Int32, Int64, jit

SLACK = 2.0**-48
ABOVE, BELOW = 1.0 + SLACK, 1.0 - SLACK
HUGE = 2.0**63  # floats from here on do not convert to int64


class States(NamedTuple):
    """Hold states; ``node`` is where their trail starts. Arrays may be longer than the list."""

    weight: Int64
    gain: Int64
    node: Int32


class Trail(NamedTuple):
    """Hold, per node, the chunk changed last and the node before; node 0 changed nothing."""

    parent: Int32
    chunk: Int32


class Best(NamedTuple):
    """Hold the largest gain that fits and its node, or -1 for the greedy fill."""

    gain: int
    node: int


class Change(NamedTuple):
    """Say what changing a chunk does to a state."""

    chunk: int
    weight: int
    gain: int


class Slopes(NamedTuple):
    """Say what a unit gains at most when filled, and loses at least when freed, from here on."""

    filled: float
    freed: float


@jit
def slopes(density: Float64, take: int, drop: int) -> Slopes:
    """Return the slopes if ``take`` is the next chunk that may be added and ``drop`` removed."""
    return Slopes(
        density[take] * ABOVE if take < density.size else 0.0,
        density[drop] * BELOW if drop >= 0 else np.inf,
    )


@jit
def can_beat(weight: int, gain: int, best: int, slope: Slopes) -> bool:
    """Tell whether the state's Dantzig bound is above ``best``."""
    if weight <= 0:
        more = -weight * slope.filled
        return more >= HUGE or int(more) > best - gain
    loss = weight * slope.freed
    return loss < HUGE and math.ceil(loss) < gain - best


@jit
def bound_of_all(states: States, count: int, best: int, slope: Slopes) -> int:
    """Return the most that any state can still reach, at least ``best``, at most 2^63-1."""
    bound = best
    for i in range(count):
        weight, gain = states.weight[i], states.gain[i]
        if can_beat(weight, gain, bound, slope):
            change = -weight * (slope.filled if weight <= 0 else slope.freed)
            if change >= HUGE or math.floor(change) > MAX_INT64 - gain:
                return MAX_INT64
            bound = gain + math.floor(change)
    return bound


@jit
def merge(
    states: States,
    count: int,
    change: Change,
    removable: int,
    slope: Slopes,
    best: Best,
    out: States,
    trail: Trail,
    nodes: int,
) -> tuple[int, int, Best]:
    """Merge the list with itself after ``change`` into ``out``, keeping what can beat the best.

    States heavier than ``removable`` can never fit. Returns the length, -1 on overflow, the
    number of nodes and the best.
    """
    kept = np.searchsorted(states.weight[:count], removable, "right")
    moved = np.searchsorted(states.weight[:count], removable - change.weight, "right")
    best_gain, best_node = best.gain, best.node
    i, j, used, top = 0, 0, 0, -1
    while i < kept or j < moved:
        moves = j < moved and (i == kept or _changed_is_first(states, i, j, change))
        if moves:
            weight, gain = states.weight[j] + change.weight, states.gain[j] + change.gain
            parent, node = states.node[j], nodes
            j += 1
            if gain < 0:
                return -1, nodes, best
        else:
            weight, gain, node = states.weight[i], states.gain[i], states.node[i]
            i += 1
        if gain <= top:
            continue  # a state at most as heavy gains as much
        top = gain
        if not can_beat(weight, gain, best_gain, slope):
            continue
        if moves:
            # Where a state moves, its parent was set with it.
            trail.parent[nodes] = parent  # pyright: ignore[reportPossiblyUnboundVariable]
            trail.chunk[nodes] = change.chunk
            nodes += 1
        out.weight[used], out.gain[used], out.node[used] = weight, gain, node
        used += 1
        if weight <= 0 and gain > best_gain:
            best_gain, best_node = gain, node
    return used, nodes, Best(best_gain, best_node)


@jit
def _changed_is_first(states: States, i: int, j: int, change: Change) -> bool:
    weight, gain = states.weight[j] + change.weight, states.gain[j] + change.gain
    if weight == states.weight[i]:
        return bool(gain > states.gain[i])
    return bool(weight < states.weight[i])


@jit
def new_states(space: int) -> States:
    """Return arrays for ``space`` states."""
    return States(np.empty(space, np.int64), np.empty(space, np.int64), np.empty(space, np.int32))


@jit
def new_trail(space: int) -> Trail:
    """Return a trail of ``space`` nodes, of which node 0 is set."""
    trail = Trail(np.empty(space, np.int32), np.empty(space, np.int32))
    trail.parent[0] = trail.chunk[0] = 0
    return trail


@jit
def with_space(states: States, needed: int) -> States:
    """Return arrays for ``needed`` states at least, without what was in them."""
    return states if states.weight.size >= needed else new_states(2 * needed)


@jit
def with_nodes(trail: Trail, nodes: int, more: int) -> Trail:
    """Return the trail, copied to twice the space if ``more`` nodes do not fit."""
    if trail.parent.size >= nodes + more:
        return trail
    longer = new_trail(2 * (nodes + more))
    for i in range(nodes):  # assigning slices takes numba 2 s longer to compile
        longer.parent[i], longer.chunk[i] = trail.parent[i], trail.chunk[i]
    return longer
