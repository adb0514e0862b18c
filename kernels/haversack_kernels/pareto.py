"""Lists of states that no other beats in both of two figures, for the sweeps over chains.

In a list one figure rises, here called ``retained``, and the other falls, ``extra``. Each option of
a block shifts the states that it may follow, and the shifted lists are merged. A state is dropped
when even the outlook on what follows, linear in ``retained``, cannot bring it to what is wanted.
Knows nothing of ceilings or of which end of the chain is swept first.
"""

import math
from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import MAX_INT64, Int32, Int64, jit


class States(NamedTuple):
    """Hold states by retained bytes, with the option taken last and the node it was taken from."""

    retained: Int64
    extra: Int64
    option: Int32
    parent: Int32


class Options(NamedTuple):
    """Hold the options of one block and which states each may follow: ``head`` to ``stop``.

    The result retains ``lowest`` at least. Options are rows from ``row`` on.
    """

    retained: Int64
    extra: Int64
    lowest: Int64
    head: Int64
    stop: Int64
    row: int


class Trail(NamedTuple):
    """Hold, per node, the option taken last and the node before, -1 before the first block."""

    option: Int32
    parent: Int32


@jit
def count_up_to(values: Int64, count: int, most: int) -> int:
    """Return how many of the first ``count`` values, which rise, are at most ``most``."""
    low = 0
    while low < count:
        middle = (low + count) // 2
        if values[middle] <= most:
            low = middle + 1
        else:
            count = middle
    return low


@jit
def extend(
    options: Options,
    states: States,
    first: int,
    fixed: float,
    price: float,
    most_extra: int,
    out: States,
) -> int:
    """Merge the list shifted by each option into ``out``; return its length.

    The states have nodes from ``first`` on. Of equal states the one with the lower option is kept.
    """
    head, stop = options.head, options.stop
    used, least = 0, MAX_INT64
    while True:
        chosen, retained, extra = -1, 0, 0
        for k in range(head.size):
            own_retained, own_extra = options.retained[k], options.extra[k]
            while head[k] < stop[k] and states.extra[head[k]] + own_extra >= least:
                head[k] += 1  # a state that retains no more costs no more
            if head[k] < stop[k]:
                r = max(states.retained[head[k]] + own_retained, options.lowest[k])
                x = states.extra[head[k]] + own_extra
                if chosen < 0 or r < retained or (r == retained and x < extra):
                    chosen, retained, extra = k, r, x
        if chosen < 0:
            return used
        least = extra
        if outlook_on(fixed, price, retained) <= most_extra - extra:
            out.retained[used], out.extra[used] = retained, extra
            out.option[used], out.parent[used] = options.row + chosen, first + head[chosen]
            used += 1


@jit
def outlook_on(fixed: float, price: float, retained: int) -> int:
    """Return the least that the remaining blocks cost after ``retained`` bytes."""
    least = fixed + price * retained
    if least <= 0.0:
        return 0
    return math.ceil(least) if least < 2.0**63 else MAX_INT64


@jit
def new_states(space: int) -> States:
    """Return arrays for ``space`` states."""
    return States(
        np.empty(space, np.int64),
        np.empty(space, np.int64),
        np.empty(space, np.int32),
        np.empty(space, np.int32),
    )


@jit
def with_space(states: States, needed: int) -> States:
    """Return arrays for ``needed`` states at least, without what was in them."""
    return states if states.retained.size >= needed else new_states(2 * needed)


@jit
def new_trail(space: int) -> Trail:
    """Return a trail of ``space`` nodes."""
    return Trail(np.empty(space, np.int32), np.empty(space, np.int32))


@jit
def with_nodes(trail: Trail, nodes: int, more: int) -> Trail:
    """Return the trail, copied to twice the space if ``more`` nodes do not fit."""
    if trail.option.size >= nodes + more:
        return trail
    longer = new_trail(2 * (nodes + more))
    for i in range(nodes):  # assigning slices takes numba 2 s longer to compile
        longer.option[i], longer.parent[i] = trail.option[i], trail.parent[i]
    return longer
