"""What a knapsack needs no search for: what is useless, free or equal, and common divisors.

Candidates that are equal in size and gain make one *run*; the search sees runs, densest first, and
says how many copies of each are taken. Knows nothing of the search.
"""

import secrets
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._exact import at_least
from haversack_kernels._jit import Float64, Int64, jit

USELESS, FREE = -1, -2
"""In place of a run: what gains nothing or cannot fit; what has no size and is always saved."""

NEAR = 2.0**-49
"""Relative difference from which on float densities are in the order of the exact ones."""


class Runs(NamedTuple):
    """Hold the runs in the order in which their first candidates come.

    ``of`` has shape ``(n,)``: the run of each candidate, USELESS or FREE. Sizes are in units of
    ``size_unit``, gains of ``gain_unit``. ``sums`` are what runs and free candidates add up to, as
    high and low halves of 32 bits: of sizes, of gains, and of the free gains alone.
    """

    of: Int64
    size: Int64
    gain: Int64
    copies: Int64
    size_unit: int
    gain_unit: int
    sums: Int64


def whole(sums: Int64, which: int) -> int:
    """Return the sum of this place as a Python integer; it may exceed int64."""
    return (int(sums[2 * which]) << 32) + int(sums[2 * which + 1])


def new_seed() -> Int64:
    """Return random odd numbers to hash with, so that nobody can choose what collides."""
    return np.array([secrets.randbits(62) | 1 for _ in range(2)], dtype=np.int64)


@jit
def reduce(sizes: Int64, gains: Int64, capacity: int, seed: Int64) -> Runs:
    """Sort out what is useless or free and gather what is equal; both have shape ``(n,)``.

    The runs do not depend on ``seed``.
    """
    of, first, copies = np.empty(sizes.size, np.int64), np.empty(sizes.size, np.int64), sizes.copy()
    sums, used = np.zeros(6, np.int64), 0
    table = _new_table(sizes.size)
    for i in range(sizes.size):
        of[i] = USELESS
        if gains[i] <= 0 or sizes[i] > capacity:
            continue
        _add(sums, 0, sizes[i])
        _add(sums, 2, gains[i])
        if sizes[i] == 0:
            of[i] = FREE
            _add(sums, 4, gains[i])
            continue
        slot = _slot(table, first, sizes, gains, i, seed)
        if table[slot] < 0:
            table[slot], first[used], copies[used] = used, i, 0
            used += 1
        of[i] = table[slot]
        copies[of[i]] += 1
    size, gain = sizes[first[:used]], gains[first[:used]]
    size_unit, gain_unit = _divide(size), _divide(gain)
    return Runs(of, size, gain, copies[:used].copy(), size_unit, gain_unit, sums)


@jit
def _add(sums: Int64, at: int, value: int) -> None:
    sums[at] += value >> 32
    sums[at + 1] += value & 0xFFFFFFFF


@jit
def _new_table(candidates: int) -> Int64:
    """Return an empty hash table of at least twice as many slots, a power of two."""
    slots = 2
    while slots < 2 * candidates:
        slots *= 2
    return np.full(slots, -1, np.int64)


@jit
def _slot(table: Int64, first: Int64, sizes: Int64, gains: Int64, i: int, seed: Int64) -> int:
    """Return where the run of candidate ``i`` is in the table, or would go."""
    mixed = np.uint64(sizes[i] * seed[0] + gains[i] * seed[1])
    # Once more, or equal steps between sizes are equal steps between slots, and now and then short.
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(seed[1])
    slot = int(mixed >> np.uint64(33)) & (table.size - 1)  # low bits are those of the sum alone
    while table[slot] >= 0:
        other = first[table[slot]]
        if sizes[other] == sizes[i] and gains[other] == gains[i]:
            break
        slot = (slot + 1) & (table.size - 1)
    return slot


@jit
def _divide(values: Int64) -> int:
    """Divide positive ``values`` by their common divisor and return it, 1 if there are none."""
    common = 0
    for i in range(values.size):
        value = values[i]
        while value != 0:
            common, value = value, common % value
        if common == 1:
            return 1
    for i in range(values.size):
        values[i] //= common
    return max(common, 1)


@jit
def order_exactly(order: Int64, gain: Int64, size: Int64, density: Float64, rank: Int64) -> None:
    """Sort runs by gain / size, largest first, then by ``rank``.

    ``order`` already sorts the float ``density``, which only leaves near ones to be put right.
    """
    start = 0
    for i in range(1, order.size + 1):
        if i < order.size:
            above, below = density[order[i - 1]], density[order[i]]
            if above - below <= NEAR * (abs(above) + abs(below)):
                continue
        if i - start > 1:
            _merge_sort(order[start:i], gain, size, rank)
        start = i


@jit
def _merge_sort(order: Int64, gain: Int64, size: Int64, rank: Int64) -> None:
    source, target, width = order, np.empty_like(order), 1
    while width < order.size:
        for low in range(0, order.size, 2 * width):
            middle, high = min(low + width, order.size), min(low + 2 * width, order.size)
            i, j = low, middle
            for k in range(low, high):
                left = i < middle and (
                    j == high or not _is_before(source[j], source[i], gain, size, rank)
                )
                target[k] = source[i if left else j]
                i, j = i + left, j + 1 - left
        source, target, width = target, source, 2 * width
    for k in range(order.size):
        order[k] = source[k]


@jit
def _is_before(a: int, b: int, gain: Int64, size: Int64, rank: Int64) -> bool:
    if not at_least(gain[b], size[a], gain[a], size[b]):
        return True
    return bool(at_least(gain[a], size[b], gain[b], size[a]) and rank[a] < rank[b])


@jit
def mask(of: Int64, taken: Int64) -> NDArray[np.bool_]:
    """Return what is saved: what is free, and the first ``taken`` candidates of each run."""
    left, saved = taken.copy(), np.zeros(of.size, np.bool_)
    for i in range(of.size):
        if of[i] == FREE:
            saved[i] = True
        elif of[i] >= 0 and left[of[i]] > 0:
            left[of[i]] -= 1
            saved[i] = True
    return saved
