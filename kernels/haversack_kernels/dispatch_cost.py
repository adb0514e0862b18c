"""What solves cost before they are run; measured on a Zen 4 core, and the machine's own business.

Only ratios matter: a state of the core against a cell of the dense DP. Knows how many cells the
dense DP sweeps for one capacity (``haversack_kernels.dense_halves``), to a few percent.
"""

import numpy as np

from haversack_kernels._jit import Int64, jit
from haversack_kernels.knapsack import Problem

STATE_NS = 8.5
"""A state of the core: 6 to 9."""

L2_BYTES = 1 << 20

SOLVE_NS, CANDIDATE_NS = 2.5e5, 70.0
"""What a dense solve takes besides: in all, and for a candidate."""

CORE_NS = 3e5
"""What the core takes besides its states, and what its memory takes from a dense solve after it."""

SHARE = 0.8
"""The core may take this part of what the dense solve takes.

Together they then take at most 1.8 times as long as the dense solve alone, and 2.25 times as long
as the core would have with more. With 1 it would be twice either, were it not for what is not
counted here.
"""


def cell_ns(cells: str, row: int) -> float:
    """Return what a cell of this type takes in a dense DP with rows of so many, on the CPU."""
    size = 4 if cells == "int32" else 8
    return size * (0.018 if row * size <= L2_BYTES else 0.025)


def dense_cells(problem: Problem) -> int:
    """Return how many cells the dense DP sweeps for the problem's capacity."""
    usable = np.minimum(problem.copies, problem.capacity // problem.size)
    sizes = np.sort(_chunks(problem.size, usable))
    whole = int(sizes.sum())
    return sum(
        int(_swept(half, problem.capacity, whole - int(half.sum())))
        for half in (sizes[::2], sizes[1::2])
    )


@jit
def _chunks(size: Int64, copies: Int64) -> Int64:
    """Return the sizes of chunks of 1, 2, 4, ... copies and a rest."""
    most, used = 0, 0
    for run in range(size.size):
        most += min(copies[run], 64)
    chunks = np.empty(most, np.int64)
    for run in range(size.size):
        left, power = copies[run], 1
        while left > 0:
            chunks[used] = size[run] * min(power, left)
            left -= power
            power *= 2
            used += 1
    return chunks[:used]


@jit
def _swept(sizes: Int64, capacity: int, later: int) -> float:
    """Return the cells of a half's rows, smallest first, if as much as ``later`` comes after it."""
    reach, left, cells = 0, later, 0.0
    for i in range(sizes.size):
        left += sizes[i]
    for i in range(sizes.size):
        reach, left = reach + sizes[i], left - sizes[i]
        cells += max(min(reach, capacity) - max(sizes[i], capacity - left) + 1, 0)
    return cells
