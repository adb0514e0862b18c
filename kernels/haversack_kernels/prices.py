"""Lower bounds for ``haversack_kernels.sweep``: the ceilings relaxed, and priced.

Block ``k`` may start with at most ceiling(option) retained before it. Instead of insisting, the
relaxation charges price[k] for every byte above and pays for every byte below. Then blocks decide
alone:
    cost of an option = extra + retained * (sum of prices after k) - price[k] * ceiling
and the sum of the least costs bounds every plan from below, whatever the prices are.

Good prices come from the linear relaxation. With one ceiling per block it is solved by going
forward and, where a ceiling is exceeded, making blocks before it retain less where a byte costs
least (nested constraints, convex costs: greedy is exact). What the last byte cost at the tightest
ceiling to come is the price of a byte. Ceilings of several options are taken at the option that the
prices before make cheapest. Floats throughout; only the bound itself has to be sound.
"""

# numpy's types cannot tell an element from an array; in a kernel it is a scalar.
# pyright: reportArgumentType=false

from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import Float64, Int64, jit
from haversack_kernels.sweep import Outlook, Table

ROUNDS = 3
"""Times that ceilings are taken anew; the bound hardly rises after."""

ULP = 2.0**-52
"""What a float is rounded by, relative to it."""


class Priced(NamedTuple):
    """Hold prices of shape ``(blocks,)``, and the whole plan next to the relaxation's."""

    price: Float64
    plan: Int64


class _Heap(NamedTuple):
    """Hold blocks by what retaining a byte less costs, the cheapest at place 1 of a binary heap.

    A block that cannot retain less costs infinity.
    """

    cost: Float64
    block: Int64


@jit
def tuned(table: Table) -> Priced:
    """Return prices whose bound is about the best, and a plan that may or may not be allowed."""
    blocks = table.offsets.size - 1
    hull, ends = _hulls(table)
    ceiling, best_bound = np.empty(blocks, np.int64), -np.inf
    for block in range(blocks):
        ceiling[block] = table.ceiling[table.offsets[block]]
        for option in range(table.offsets[block], table.offsets[block + 1]):
            ceiling[block] = max(ceiling[block], table.ceiling[option])
    best = Priced(np.zeros(blocks), np.zeros(blocks, np.int64))
    for _ in range(ROUNDS):
        priced = _relaxed(table, hull, ends, ceiling)
        bound, chosen = _bound(table, priced.price)
        if bound <= best_bound:
            break
        best, best_bound = priced, bound
        for block in range(blocks):
            ceiling[block] = table.ceiling[chosen[block]]
    return best


@jit
def _hulls(table: Table) -> tuple[Int64, Int64]:
    """Return options that are best for some price of a byte, per block, most retaining first.

    Those of block ``j`` are ``hull[offsets[j]:ends[j]]``.
    """
    hull, ends = np.empty(table.retained.size, np.int64), np.empty(table.offsets.size - 1, np.int64)
    for block in range(ends.size):
        start = end = table.offsets[block]
        for option in range(start, table.offsets[block + 1]):  # by extra, then by retained
            at = end
            while at > start and _is_dearer(table, hull[at - 1], option):
                hull[at] = hull[at - 1]
                at -= 1
            hull[at] = option
            end += 1
        ends[block] = _keep_convex(table, hull, start, end)
    return hull, ends


@jit
def _is_dearer(table: Table, a: int, b: int) -> bool:
    if table.extra[a] == table.extra[b]:
        return bool(table.retained[a] > table.retained[b])
    return bool(table.extra[a] > table.extra[b])


@jit
def _keep_convex(table: Table, hull: Int64, start: int, end: int) -> int:
    """Keep, of options by extra, those on the lower convex hull; return where they end."""
    kept = start
    for at in range(start, end):
        option = hull[at]
        if kept > start and table.retained[option] >= table.retained[hull[kept - 1]]:
            continue
        while kept - start >= 2 and _cost(table, hull[kept - 2], hull[kept - 1]) >= _cost(
            table, hull[kept - 1], option
        ):
            kept -= 1
        hull[kept] = option
        kept += 1
    return kept


@jit
def _cost(table: Table, more: int, less: int) -> float:
    """Return what a byte costs that ``less`` does not retain."""
    dearer = table.extra[less] - table.extra[more]
    return float(dearer / (table.retained[more] - table.retained[less]))


@jit
def _relaxed(table: Table, hull: Int64, ends: Int64, ceiling: Int64) -> Priced:
    """Solve the linear relaxation for one ceiling per block."""
    blocks = ceiling.size
    place, last = table.offsets[:blocks].copy(), np.zeros(blocks)
    heap, size, prefix = _Heap(np.empty(blocks + 1), np.empty(blocks + 1, np.int64)), 0, 0
    for block, limit in enumerate(ceiling):
        while prefix > limit and size > 0 and heap.cost[1] < np.inf:
            leaner = heap.block[1]
            more, less = hull[place[leaner]], hull[place[leaner] + 1]
            last[block] = max(last[block], heap.cost[1])
            prefix -= table.retained[more] - table.retained[less]
            place[leaner] += 1
            heap.cost[1] = _next_cost(table, hull, place[leaner], ends[leaner])
            _sink(heap, size)
        prefix += table.retained[hull[place[block]]]
        size = block + 1
        heap.block[size] = block
        heap.cost[size] = _next_cost(table, hull, place[block], ends[block])
        _rise(heap, size)
    return Priced(_differences(last), hull[place])


@jit
def _next_cost(table: Table, hull: Int64, place: int, end: int) -> float:
    return _cost(table, hull[place], hull[place + 1]) if place + 1 < end else np.inf


@jit
def _rise(heap: _Heap, at: int) -> None:
    while at > 1 and heap.cost[at] < heap.cost[at // 2]:
        _swap(heap, at, at // 2)
        at //= 2


@jit
def _sink(heap: _Heap, size: int) -> None:
    at = 1
    while 2 * at <= size:
        child = 2 * at
        if child < size and heap.cost[child + 1] < heap.cost[child]:
            child += 1
        if heap.cost[at] <= heap.cost[child]:
            break
        _swap(heap, at, child)
        at = child


@jit
def _swap(heap: _Heap, a: int, b: int) -> None:
    heap.cost[a], heap.cost[b] = heap.cost[b], heap.cost[a]
    heap.block[a], heap.block[b] = heap.block[b], heap.block[a]


@jit
def _differences(last: Float64) -> Float64:
    """Return the prices with which a byte costs what the dearest ceiling to come cost."""
    price, dearest = np.zeros(last.size), 0.0
    for block in range(last.size - 1, -1, -1):
        price[block] = max(last[block] - dearest, 0.0)
        dearest = max(dearest, last[block])
    return price


@jit
def _bound(table: Table, price: Float64) -> tuple[float, Int64]:
    """Return the bound from the start, not yet sound, and the cheapest option of every block."""
    chosen, after, bound = np.empty(price.size, np.int64), 0.0, 0.0
    for block in range(price.size - 1, -1, -1):
        least, chosen[block], _ = cheapest(table, block, price[block], after)
        after += price[block]
        bound += least
    return bound, chosen


@jit
def outlook(table: Table, price: Float64) -> Outlook:
    """Bound the remaining cost from every block on, for given prices of shape ``(blocks,)``."""
    blocks = table.offsets.size - 1
    fixed, after = np.zeros(blocks + 1), np.zeros(blocks + 1)
    most_retained = 0.0
    for option in range(table.ceiling.size):
        most_retained = max(most_retained, float(table.ceiling[option]))
    cost, magnitude = 0.0, 0.0
    for block in range(blocks - 1, -1, -1):
        least, _, size = cheapest(table, block, price[block], after[block + 1])
        after[block] = after[block + 1] + price[block]
        cost += least
        magnitude += size
        # Every term and every partial sum may be rounded: about one ulp of the whole per block.
        rounding = ULP * (blocks + 16) * (magnitude + after[block] * most_retained)
        fixed[block] = cost - rounding
    return Outlook(fixed, after)


@jit
def cheapest(table: Table, block: int, price: float, after: float) -> tuple[float, int, float]:
    """Return the least cost of an option of ``block``, that option, and the size of the terms.

    An option whose ceiling is negative is never allowed.
    """
    least, chosen, size = np.inf, -1, 0.0
    for option in range(table.offsets[block], table.offsets[block + 1]):
        if table.ceiling[option] < 0:
            continue
        paid, refund = table.retained[option] * after, price * table.ceiling[option]
        cost = table.extra[option] + paid - refund
        size = max(size, table.extra[option] + paid + (price + after) * table.ceiling[option])
        if cost < least:
            least, chosen = cost, option
    return least, chosen, size
