"""What solves cost before they are run: measured figures, each with the machine and the run.

Only ratios matter: a state of a search against a cell of a dense DP, and one device against
another. Knows how many cells the dense DP sweeps for one capacity
(``haversack_kernels.dense_halves``), to a few percent. Knows no device's memory.
"""

from math import sqrt
from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import MAX_INT64, Float64, Int64, jit, total
from haversack_kernels.dense_rows import cell_type
from haversack_kernels.knapsack import Problem
from haversack_kernels.unsettled import Unsettled

STATE_NS = 11.0
"""A state of the core on a Zen 4 core: 8 to 10 on most instances, 6 to 25 in all, most where fresh
pages are written. Those are the last states before a hand-over: at 9.5, one hard instance of 52
took 2.1 times its dense DP; at 11, the worst of them took 1.8."""

CORE_NS = 6e4
"""What the core takes besides its states, on the same core."""

BYTE_NS = ((1 << 20, 0.018), (1 << 23, 0.025), (1 << 24, 0.046), (1 << 62, 0.07))
"""A byte of a cell in rows of up to so many: in L2, in L3 of 32 MB, at its edge, beyond."""

SOLVE_NS, CANDIDATE_NS = 3e5, 70.0
"""What a dense solve on the CPU takes besides: in all, and for a candidate."""

SLOT_NS = {"int32": 0.040, "int64": 0.088}
"""An option and slot on a Zen 4 core: 100 and 1,000 blocks of 8 options in 65,536 slots."""

CUDA_SOLVE_NS = 2.5e6
"""What a solve on a CUDA device takes besides the following, the way to the worker included.

These are of an NVIDIA H200 with driver 580.159.04, numba-cuda 0.30.4 and numpy 2.3.5, beside an
Intel Xeon: the run of ``python -m tests.bench.gpu`` of 2026-11-29 (37 s in all) that gave the
break-even rows of ``tests/golden/h200_break_even.json``. Those are of 100 candidates; what more of
them take on the host was measured on a Zen 4 core, in numba's simulator.
"""

CUDA_HOST = 1.7
"""How many times as long that Xeon took for what is said of the CPU above: 0.9 to 2.4, for 100,000
cells a row and more. What is said of the device is divided by it, since only ratios matter."""

CUDA_TILE_BYTES = 200 << 10
"""A row up to this size is swept by one block in one step; H200: 227 KB of shared memory."""

CUDA_CANDIDATE_NS, CUDA_STEP_NS = 7e3, 1e4
"""What a candidate takes in the tables of longer rows, and a step, which is one or more of them."""

CUDA_CELL_NS = {"int32": 1 / 378, "int64": 1 / 245, "float64": 1 / 248}
"""A cell: fused, 10 million cells a row."""

CUDA_BLOCK_NS = 2e3
"""The tables of a block of a chain, on the host."""

CUDA_SLOT_NS = {"int32": 1 / 60.6, "int64": 1 / 44.1}
"""An option and slot, launches included: fused, 1,000 blocks, 65,705 slots."""


class Work(NamedTuple):
    """Say what a dense DP has to do.

    ``row`` cells of type ``kind`` ("int32", ...) stand side by side, ``cells`` are swept in all,
    for ``rows`` candidates whose sizes sum to ``size_sum`` cells; or for options of so many blocks.
    """

    kind: str
    row: int
    cells: float
    rows: int
    size_sum: float

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row."""
        return self.row * np.dtype(self.kind).itemsize


def core_ns(states: int) -> float:
    """Return what the core takes to look at so many states."""
    return CORE_NS + states * STATE_NS


def states_worth(dense_ns: float) -> int:
    """Return how many states the core may look at before a dense solve: as many as cost the same.

    Where they prove nothing both are paid: at most twice the dense solve, and at most twice what
    the core would take with more states, for that is more than the dense solve takes. No rule that
    does not know what the core needs can hold both below two. What is not counted, such as the way
    from one to the other, is paid from what the core's best settles, which no dense solve sweeps.
    """
    return max(int((dense_ns - CORE_NS) / STATE_NS), 0)


def cpu_one_ns(work: Work) -> float:
    """Return what a knapsack takes in a dense DP on the CPU."""
    byte_ns = next(ns for most, ns in BYTE_NS if work.row_bytes <= most)
    cell_ns = np.dtype(work.kind).itemsize * byte_ns
    return SOLVE_NS + work.rows * CANDIDATE_NS + work.cells * cell_ns


def cpu_chain_ns(work: Work) -> float:
    """Return what a chain takes in slots on the CPU."""
    return SOLVE_NS + work.cells * SLOT_NS[work.kind]


def cuda_one_ns(work: Work) -> float:
    """Return what a knapsack takes on a CUDA device."""
    ns = CUDA_SOLVE_NS + work.cells * CUDA_CELL_NS[work.kind]
    if work.row_bytes > CUDA_TILE_BYTES:
        steps = min(work.rows, 0.3 * sqrt(work.size_sum))  # fitted to 100 to 5,000, to 40 %
        ns += work.rows * CUDA_CANDIDATE_NS + steps * CUDA_STEP_NS
    return ns / CUDA_HOST


def cuda_chain_ns(work: Work) -> float:
    """Return what a chain takes in slots on a CUDA device."""
    ns = CUDA_SOLVE_NS + work.rows * CUDA_BLOCK_NS + work.cells * CUDA_SLOT_NS[work.kind]
    return ns / CUDA_HOST


def dense_work(problem: Problem | Unsettled, unit: int) -> Work:
    """Return what the dense DP does for a problem, its cells ``unit`` wide."""
    sizes = _sizes(problem)
    return Work(
        kind=np.dtype(cell_type(np.array([_most_gain(problem)])).dtype).name,
        row=problem.capacity // unit,
        cells=_cells(sizes, problem.capacity) / unit,
        rows=sizes.size,
        size_sum=float(sizes.sum(dtype=np.float64)) / unit,
    )


def dense_cells(problem: Problem | Unsettled) -> int:
    """Return how many cells the dense DP sweeps for the problem's capacity."""
    return _cells(_sizes(problem), problem.capacity)


def _most_gain(problem: Problem | Unsettled) -> int:
    if isinstance(problem, Unsettled):
        return min(total(problem.gain), MAX_INT64)
    return min(problem.gain_sum // problem.runs.gain_unit, MAX_INT64)


def _cells(sizes: Int64, capacity: int) -> int:
    return int(_swept(np.sort(sizes).astype(np.float64), float(capacity)))


def _sizes(problem: Problem | Unsettled) -> Int64:
    """Return the sizes of the dense DP's chunks, or about these."""
    if isinstance(problem, Unsettled):
        return problem.size
    return _chunks(problem.size, np.minimum(problem.copies, problem.capacity // problem.size))


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
def _swept(ordered: Float64, capacity: float) -> float:
    """Return the cells of the rows of both halves, every other size each, smallest first.

    In floats, for the sizes may sum up to more than an int64 holds.
    """
    whole, cells = 0.0, 0.0
    for size in ordered:
        whole += size
    for half in range(2):
        reach, left = 0.0, whole
        for i in range(half, ordered.size, 2):
            reach, left = reach + ordered[i], left - ordered[i]
            cells += max(min(reach, capacity) - max(ordered[i], capacity - left) + 1.0, 0.0)
    return cells
