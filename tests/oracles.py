"""Slow versions that are right at first sight: what the property tests trust.

They enumerate, or loop over every cell. No bounds, no pruning, no reductions, and nothing
imported from the code under test.
"""

from itertools import product
from typing import NamedTuple, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

Int64: TypeAlias = NDArray[np.int64]
Objects: TypeAlias = NDArray[np.object_]


def subsets(values: list[int]) -> Objects:
    """Return the sum of every subset in Python integers; bit i of a place takes value i."""
    sums = np.zeros(1, dtype=object)
    for value in values:
        sums = np.concatenate([sums, sums + value])
    return sums


def knapsack_by_enumeration(sizes: list[int], gains: list[int], capacity: int) -> int:
    """Return the largest gain of all subsets within ``capacity``; may exceed int64."""
    within = np.array(subsets(sizes) <= capacity, dtype=np.bool_)
    return int(subsets(gains)[within].max())


@numba.njit(cache=True)
def knapsack_by_dense_dp(sizes: Int64, gains: Int64, capacity: int) -> int:
    """Return the largest gain by the two textbook loops over candidates and capacities."""
    best = np.zeros(capacity + 1, np.int64)
    for i in range(sizes.size):
        for c in range(capacity, sizes[i] - 1, -1):
            best[c] = max(best[c], best[c - sizes[i]] + gains[i])
    return int(best[capacity])


@numba.njit(cache=True)
def knapsack_curve(sizes: Int64, gains: Int64, capacity: int) -> Int64:
    """Return the largest gain for every capacity from 0 on, by the two textbook loops."""
    best = np.zeros(capacity + 1, np.int64)
    for i in range(sizes.size):
        for c in range(capacity, sizes[i] - 1, -1):
            best[c] = max(best[c], best[c - sizes[i]] + gains[i])
    return best


@numba.njit(cache=True)
def ceiling_by_dense_dp(
    offsets: Int64, retained: Int64, extra: Int64, ceilings: Int64, most_retained: int
) -> int:
    """Return the least extra, or -1 if there is no plan, by a row with a cell per retained byte."""
    never = np.iinfo(np.int64).max
    before = np.full(most_retained + 1, never)
    before[0] = 0
    for block in range(offsets.size - 1):
        after = np.full(most_retained + 1, never)
        for o in range(offsets[block], offsets[block + 1]):
            for u in range(min(ceilings[o], most_retained - retained[o]) + 1):
                if before[u] != never:
                    moved = u + retained[o]
                    after[moved] = min(after[moved], before[u] + extra[o])
        before = after
    return -1 if before.min() == never else int(before.min())


class Chain(NamedTuple):
    """Hold the option columns of a chain of blocks and the bases of each block."""

    offsets: Int64
    retained: Int64
    forward_peak: Int64
    backward_peak: Int64
    extra: Int64
    forward_base: Int64
    backward_base: Int64


class Plan(NamedTuple):
    """Hold one plan of a chain and what it comes to."""

    options: tuple[int, ...]
    peak: int
    extra: int
    retained: int


def all_plans(chain: Chain) -> list[Plan]:
    """Walk every combination of options block by block."""
    rows = [range(a, b) for a, b in zip(chain.offsets[:-1], chain.offsets[1:], strict=True)]
    return [_walk(chain, options) for options in product(*rows)]


def _walk(chain: Chain, options: tuple[int, ...]) -> Plan:
    peak, extra, retained = -(2**63), 0, 0
    for block, option in enumerate(options):
        forward = int(chain.forward_base[block]) + retained + int(chain.forward_peak[option])
        backward = int(chain.backward_base[block]) + retained + int(chain.backward_peak[option])
        peak = max(peak, forward, backward)
        extra += int(chain.extra[option])
        retained += int(chain.retained[option])
    return Plan(options, peak, extra, retained)


def allowed(chain: Chain, plan: Plan, forward_capacity: Int64, backward_capacity: Int64) -> bool:
    """Tell whether every option of the plan is at or below its ceilings."""
    prefix = 0
    for block, option in enumerate(plan.options):
        if prefix + int(chain.forward_peak[option]) > forward_capacity[block]:
            return False
        if prefix + int(chain.backward_peak[option]) > backward_capacity[block]:
            return False
        prefix += int(chain.retained[option])
    return True


@numba.njit(cache=True)
def ceiling_rows_by_dense_dp(
    offsets: Int64, retained: Int64, extra: Int64, ceilings: Int64, most_retained: int
) -> tuple[Int64, NDArray[np.uint8]]:
    """Return the last row of ``ceiling_by_dense_dp``, and the option that each cell took.

    The row holds the largest int64 where nothing retains so much. Decisions have a row per block:
    the lowest of the best options, counted from the block's first, or 255 if there is none.
    """
    never, blocks = np.iinfo(np.int64).max, offsets.size - 1
    decisions = np.full((blocks, most_retained + 1), 255, np.uint8)
    before = np.full(most_retained + 1, never)
    before[0] = 0
    for block in range(blocks):
        after = np.full(most_retained + 1, never)
        for o in range(offsets[block], offsets[block + 1]):
            for u in range(min(ceilings[o], most_retained - retained[o]) + 1):
                moved = u + retained[o]
                if before[u] != never and before[u] + extra[o] < after[moved]:
                    after[moved] = before[u] + extra[o]
                    decisions[block, moved] = o - offsets[block]
        before = after
    return before, decisions


def ceiling_plan_of_rows(
    offsets: Int64, retained: Int64, row: Int64, decisions: NDArray[np.uint8]
) -> list[int]:
    """Walk back the plan of least extra that retains least; empty if there is no plan."""
    if row.min() == np.iinfo(np.int64).max:
        return []
    cell, options = int(row.argmin()), []
    for block in range(offsets.size - 2, -1, -1):
        options.append(int(offsets[block]) + int(decisions[block, cell]))
        cell -= int(retained[options[-1]])
    return options[::-1]


@numba.njit(cache=True)
def floor_by_halving(offsets: Int64, retained: Int64, need: Int64, others: int) -> int:
    """Return the least peak, by halving the budgets between none that holds a plan and one."""
    low, high = need.min() - 1, need.max()
    for block in range(offsets.size - 1):
        high += (others + 1) * retained[offsets[block] : offsets[block + 1]].max()
    while high - low > 1:
        middle = low + (high - low) // 2
        if holds_a_plan(offsets, retained, middle - need, others):
            high = middle
        else:
            low = middle
    return int(high)


@numba.njit(cache=True)
def holds_a_plan(offsets: Int64, retained: Int64, ceilings: Int64, others: int) -> bool:
    """Take the leanest option at or below its ceiling; once more if the others retain more by it.

    Whatever a plan can do after a block, the leanest prefix can do too (decision 10).
    """
    total, before = 0, -1
    while total > before:
        before, total = total, 0
        for block in range(offsets.size - 1):
            least = np.iinfo(np.int64).max
            for o in range(offsets[block], offsets[block + 1]):
                if total + others * before <= ceilings[o]:
                    least = min(least, retained[o])
            if least == np.iinfo(np.int64).max:
                return False
            total += least
    return True
