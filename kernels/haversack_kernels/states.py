"""The list of states of ``haversack_kernels.core``: merged, pruned, paired and traced back.

A state's weight is its size minus the capacity, so it fits if its weight is <= 0. A list holds the
states lightest first, each of more gain than the one before: no state beats another in both.

A state is dropped when ``haversack_kernels.bounds`` show that it cannot beat the best. Knows
nothing of runs.
"""

from typing import NamedTuple

import numpy as np

from haversack_kernels._exact import at_least
from haversack_kernels._jit import Int32, Int64, jit
from haversack_kernels._select import nth_smallest
from haversack_kernels.bounds import Quota, Rate, Rates, can_beat, filled, freed

BEYOND = 2**62
"""Weight that ends a list: no sum of a size and a weight that can still fit reaches it."""


class Lists(NamedTuple):
    """Hold two lists of states, one from place 0 on and one from the middle of the arrays on.

    A merge reads the one and writes the other. ``node`` is where a state's trail starts.
    """

    weight: Int64
    gain: Int64
    copies: Int32
    node: Int32


class Trail(NamedTuple):
    """Hold, per node, the chunk changed last and the node before; node 0 changed nothing."""

    parent: Int32
    chunk: Int32


class Best(NamedTuple):
    """Hold the largest gain that fits and the one or two nodes it is made of, -1 for none."""

    gain: int
    node: int
    other: int


class Change(NamedTuple):
    """Say what changing a chunk does to a state."""

    chunk: int
    weight: int
    gain: int
    copies: int


class Merged(NamedTuple):
    """Say how far a merge is: the next states, the end of the new list, and its largest gain."""

    i: int
    j: int
    used: int
    nodes: int
    top: int


@jit
def merge(
    lists: Lists,
    begin: int,
    count: int,
    change: Change,
    removable: int,
    quota: Quota,
    rates: Rates,
    best: Best,
    trail: Trail,
    nodes: int,
) -> tuple[int, int, Best]:
    """Merge the list at ``begin`` with itself after ``change`` into the other list.

    Keeps what can beat the best; states heavier than ``removable`` can never fit. Returns the
    length, the number of nodes and the best.
    """
    lists.weight[begin + count] = BEYOND
    start = lists.weight.size // 2 - begin
    merged = Merged(begin, begin, start, nodes, np.iinfo(np.int64).min)
    fits = min(removable, 0)  # always 0, but no constant, for which numba would compile anew
    merged = _merge_up_to(fits, lists, merged, change, quota, filled(rates), best.gain, trail)
    last = merged.used - 1
    if last >= start and lists.gain[last] > best.gain:  # what gains more than the best is kept
        best = Best(lists.gain[last], lists.node[last] + 0, -1)  # + 0 makes int64 of it
    merged = _merge_up_to(removable, lists, merged, change, quota, freed(rates), best.gain, trail)
    return merged.used - start, merged.nodes, best


@jit
def _merge_up_to(
    most: int,
    lists: Lists,
    merged: Merged,
    change: Change,
    quota: Quota,
    rate: Rate,
    best: int,
    trail: Trail,
) -> Merged:
    """Merge the states of weight up to ``most`` and drop those whose bound is not above ``best``.

    Written without branches where the order of states decides, for a mispredicted one costs more
    than a state, and with unsigned indices, which numba does not test for being negative.
    """
    weights, gains, all_copies, all_nodes = lists
    i, j, used, nodes, top = merged
    while True:
        at_i, at_j = np.uint64(i), np.uint64(j)
        weight_i, weight_j = weights[at_i], weights[at_j] + change.weight
        gain_i, gain_j = gains[at_i], gains[at_j] + change.gain
        copies_i, copies_j = all_copies[at_i] + 0, all_copies[at_j] + change.copies
        node_i, node_j = all_nodes[at_i] + 0, all_nodes[at_j]
        moves = (weight_j < weight_i) | ((weight_j == weight_i) & (gain_j > gain_i))
        weight, gain = (weight_j if moves else weight_i), (gain_j if moves else gain_i)
        if weight > most:
            break
        copies, node = (copies_j if moves else copies_i), (nodes if moves else node_i)
        i, j = i + 1 - moves, j + moves
        short = best + 1 - gain
        short_priced = short - quota.price * (quota.copies - copies)
        # What a state at most as heavy gains as much is beaten by it.
        keeps = (
            (gain > top)
            & at_least(-weight, rate.gain, short, rate.size)
            & at_least(-weight, rate.priced_gain, short_priced, rate.priced_size)
        )
        top = max(top, gain)
        to, new = np.uint64(used), np.uint64(nodes)
        weights[to], gains[to], all_copies[to], all_nodes[to] = weight, gain, copies, node
        trail.parent[new], trail.chunk[new] = node_j, change.chunk
        used, nodes = used + keeps, nodes + (keeps & moves)
    return Merged(i, j, used, nodes, top)


@jit
def pair(
    lists: Lists,
    begin: int,
    count: int,
    others: Lists,
    other_begin: int,
    other_count: int,
    room: int,
    base_gain: int,
    best: Best,
) -> Best:
    """Combine every state with every other, of changes to other chunks, and return the best.

    Both lists start from a state of ``room`` and ``base_gain``. For a state the heaviest other that
    fits gains most, and the heavier the state the lighter that is: so one pass is enough.
    """
    j = other_begin + other_count - 1
    for i in range(begin, begin + count):
        left = -room - lists.weight[i]
        while j >= other_begin and others.weight[j] > left:
            j -= 1
        if j < other_begin:
            break
        gain = lists.gain[i] - base_gain + others.gain[j]
        if gain > best.gain:
            best = Best(gain, lists.node[i] + 0, others.node[j] + 0)
    return best


@jit
def thin(lists: Lists, begin: int, count: int, width: int, quota: Quota, rates: Rates) -> int:
    """Keep the ``width`` states of highest bounds, as floats; return how many are left."""
    loss = np.empty(count)
    for i in range(count):
        at = begin + i
        rate = filled(rates) if lists.weight[at] <= 0 else freed(rates)
        weight, gain = float(lists.weight[at]), float(lists.gain[at])
        loss[i] = weight * rate.gain / rate.size - gain if rate.size > 0 else -np.inf
        owed = float(quota.price) * (quota.copies - lists.copies[at])
        priced = weight * rate.priced_gain / rate.priced_size - gain - owed
        loss[i] = max(loss[i], priced)
    most, kept = nth_smallest(loss.copy(), width - 1), 0
    for i in range(count):
        if loss[i] <= most and kept < width:
            to, at = begin + kept, begin + i
            lists.weight[to], lists.gain[to] = lists.weight[at], lists.gain[at]
            lists.copies[to], lists.node[to] = lists.copies[at], lists.node[at]
            kept += 1
    return kept


@jit
def bound_of_all(
    lists: Lists, begin: int, count: int, best: int, quota: Quota, rates: Rates
) -> int:
    """Return the largest gain that a state may still reach, from ``best`` up to 2^62."""
    bound, most = best, 2**62
    for i in range(begin, begin + count):
        weight, gain, copies = lists.weight[i], lists.gain[i], lists.copies[i]
        high = most if can_beat(weight, gain, copies, bound, quota, rates) else bound
        while bound < high:
            middle = high - (high - bound) // 2
            if can_beat(weight, gain, copies, middle - 1, quota, rates):
                bound = middle
            else:
                high = middle - 1
    return bound


@jit
def new_lists(space: int) -> Lists:
    """Return arrays for two lists of fewer than ``space`` states each."""
    return Lists(
        np.empty(2 * space, np.int64),
        np.empty(2 * space, np.int64),
        np.empty(2 * space, np.int32),
        np.empty(2 * space, np.int32),
    )


@jit
def with_space(lists: Lists, begin: int, count: int) -> Lists:
    """Return arrays for the list at ``begin``, moved to place 0, and one of twice its length."""
    longer = new_lists(2 * count + count // 4 + 64)
    for i in range(count):
        longer.weight[i], longer.gain[i] = lists.weight[begin + i], lists.gain[begin + i]
        longer.copies[i], longer.node[i] = lists.copies[begin + i], lists.node[begin + i]
    return longer


@jit
def new_trail(space: int) -> Trail:
    """Return a trail of ``space`` nodes, of which node 0 is set."""
    trail = Trail(np.empty(space, np.int32), np.empty(space, np.int32))
    trail.parent[0] = trail.chunk[0] = 0
    return trail


@jit
def with_nodes(trail: Trail, nodes: int, more: int) -> Trail:
    """Return the trail copied to twice the space that ``more`` nodes need."""
    longer = new_trail(2 * (nodes + more))
    for i in range(nodes):  # assigning slices takes numba 2 s longer to compile
        longer.parent[i], longer.chunk[i] = trail.parent[i], trail.chunk[i]
    return longer
