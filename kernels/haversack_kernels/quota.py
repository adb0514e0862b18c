"""Prices the number of copies, which sharpens the bounds where gains follow sizes.

A capacity holds at most so many copies: the smallest, taken until one does not fit. And to beat the
best gain takes at least so many: the most gaining, until they gain more. Either is a *quota* that
every better solution keeps. Charging a price for each copy, and paying it back for the quota,

    largest sum of (gain - price) * x within the capacity, plus price * quota

bounds these solutions for any price > 0 of a most and any price < 0 of a least, and the least such
bound is found where the copies that the relaxation takes just keep the quota. (The cardinality
bounds of Martello, Pisinger and Toth 1999; the price is a Lagrange multiplier.)

The price is searched for in floats; bounds that use it are computed elsewhere, and exactly.
"""

# numpy's types cannot tell an element from an array; in a kernel it is a scalar.
# pyright: reportAssignmentType=false, reportReturnType=false

import numpy as np

from haversack_kernels._jit import Float64, Int64, jit
from haversack_kernels.bounds import Quota
from haversack_kernels.runs import order_exactly

ROUNDS = 40
WORTH = 0.01
"""Share of the gap that a price must close: it disturbs the order of densities."""

MOST_PRICED = 2**60
"""Above it a gain times a number of copies is not computed with."""


def find(size: Int64, gain: Int64, copies: Int64, capacity: int, best: int) -> Quota:
    """Return the quota and price of the least bound, or price 0 if none is well below Dantzig's."""
    if size.size == 0 or gain.max() > MOST_PRICED // copies.sum():
        return Quota(0, 0)
    most = copies_within(size, copies, capacity, np.argsort(size))
    least = copies_within(gain, copies, best, np.argsort(-gain)) + 1
    plain, taken = relaxed(size, gain, copies, capacity, 0)
    chosen, bound = Quota(0, 0), plain
    for kept, end in ((most, int(gain.max())), (least, -int(gain.max()))):
        if taken > kept if end > 0 else taken < kept:
            price, value = tuned(size, gain, copies, capacity, kept, end, plain, taken)
            if value < bound:
                chosen, bound = Quota(price, kept), value
    return chosen if plain - bound > WORTH * (plain - best) else Quota(0, 0)


@jit
def copies_within(values: Int64, copies: Int64, most: int, order: Int64) -> int:
    """Return how many copies, in this order, add up to at most ``most``."""
    count = 0
    for run in order:
        more = min(copies[run], most // values[run])
        count += more
        most -= more * values[run]
        if more < copies[run]:
            break
    return count


@jit
def tuned(
    size: Int64,
    gain: Int64,
    copies: Int64,
    capacity: int,
    kept: int,
    end: int,
    plain: float,
    taken: float,
) -> tuple[int, float]:
    """Return the price between 0 and ``end`` of the least bound, and that bound.

    Without a price the bound is ``plain``, and ``taken`` copies are taken there.
    The bound is convex in the price: the next price to try is where the tangents on either side of
    the least meet.
    """
    near, near_value, near_slope = 0, plain, kept - taken
    value, taken = relaxed(size, gain, copies, capacity, end)
    far, far_value, far_slope = end, value + float(end) * kept, kept - taken
    for _ in range(ROUNDS):
        if near_slope == far_slope:
            break
        meet = (near_value - far_value - near * near_slope + far * far_slope) / (
            far_slope - near_slope
        )
        price = round(meet)
        if price in (near, far) or (price - near > 0) == (price - far > 0):
            break
        value, taken = relaxed(size, gain, copies, capacity, price)
        value, slope = value + float(price) * kept, kept - taken
        if (slope < 0.0) == (near_slope < 0.0):
            near, near_value, near_slope = price, value, slope
        else:
            far, far_value, far_slope = price, value, slope
    return (near, near_value) if near_value < far_value else (far, far_value)


@jit
def relaxed(
    size: Int64, gain: Int64, copies: Int64, capacity: int, price: int
) -> tuple[float, float]:
    """Return what parts of copies gain within ``capacity`` less the price, and how many they are.

    The break density is found by halving the runs that may have it.
    """
    density, left, count = np.empty(size.size), np.empty(size.size, np.int64), 0
    for run in range(size.size):
        density[run] = (gain[run] - price) / size[run]
        if density[run] > 0.0:
            left[count] = run
            count += 1
    room, value, taken, first = float(capacity), 0.0, 0.0, 0
    while first < count and room > 0.0:
        high, low = _partition(left, first, count, density)
        needed = 0.0
        for k in range(first, high):
            needed += float(size[left[k]]) * copies[left[k]]
        if needed > room:
            count = high
            continue
        for k in range(first, low):
            run = left[k]
            part = min(float(copies[run]), room / size[run])
            room -= part * size[run]
            value += part * (gain[run] - price)
            taken += part
        first = low
    return value, taken


@jit
def _partition(left: Int64, first: int, end: int, density: Float64) -> tuple[int, int]:
    """Move what is denser than some run to the front and what is less dense to the back.

    Returns where the equally dense begin and end.
    """
    pivot, at, high, low = density[left[(first + end) // 2]], first, first, end
    while at < low:
        run = left[at]
        if density[run] > pivot:
            left[at], left[high] = left[high], run
            high, at = high + 1, at + 1
        elif density[run] < pivot:
            low -= 1
            left[at], left[low] = left[low], run
        else:
            at += 1
    return high, low


def order_at(size: Int64, gain: Int64, price: int) -> Int64:
    """Sort runs by density with the price of a copy taken off, then as they were."""
    paid = gain - price
    density = paid / size
    order = np.argsort(-density, kind="stable")
    order_exactly(order, paid, size, density, np.arange(size.size))
    return order
