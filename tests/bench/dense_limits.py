"""What the dense DP is held against: raw sweeps, copies and other passes over a row."""

import ctypes
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from haversack_kernels import dense_rows
from haversack_kernels._jit import Int64
from haversack_kernels.arena import Lease
from haversack_kernels.dense_rows import CellType
from haversack_kernels.dense_sweep import sweep

INT32 = CellType(np.int32, 2**31 - 1, may_overflow=False)
INT64 = CellType(np.int64, 2**63 - 1, may_overflow=False)


class RawSweep:
    """Sweeps every candidate over all cells from its size up: no windows, no reductions."""

    def __init__(self, sizes: Int64, gains: Int64, capacity: int, kind: CellType) -> None:
        n, order = sizes.size, np.argsort(sizes, kind="stable")
        rows = dense_rows.all_rows(sizes[order], gains[order], capacity, kind)
        rows = rows._replace(high=np.full(n, capacity), before=np.zeros_like(rows.before))
        self.rows, next_word = dense_rows.keeping(rows, 0, dense_rows.SCRATCH_WORDS)
        words = next_word - dense_rows.SCRATCH_WORDS
        lease = Lease(dense_rows.row_bytes(capacity, kind) + dense_rows.bits_bytes(words))
        self.row = dense_rows.new_row(lease, capacity, kind)
        self.bits = dense_rows.new_bits(lease, words)
        self.cells, self.most = n * (capacity + 1), kind.most

    def one_by_one(self) -> Int64:
        """Return the ends of groups of one."""
        return np.arange(1, self.rows.size.size + 1)

    def waves(self) -> Int64:
        """Return the ends of wavefronts."""
        return dense_rows.wave_ends(self.rows.size, self.row.itemsize)

    def run(self, ends: Int64, chunk_shift: int) -> None:
        """Sweep in the given groups."""
        never, progress = np.zeros(1, dtype=np.uint8), np.zeros(2, dtype=np.int64)
        sweep(self.row, self.rows, ends, chunk_shift, self.bits, self.most, never, progress)


def raw_sweep(n: int, capacity: int, mean_size: int, kind: CellType) -> RawSweep:
    """Return the sweep of uncorrelated candidates."""
    random = np.random.default_rng(0)
    sizes = random.integers(1, 2 * mean_size, n)
    return RawSweep(sizes, random.integers(1, 1000, n), capacity, kind)


class Halves:
    """Copies one half of as much memory as a row to the other, as often as makes 20M cells."""

    def __init__(self, row: NDArray[Any]) -> None:
        half = row.size // 2
        memory = Lease(2 * half * row.itemsize + 64)
        self.source, self.target = memory.array(half, row.dtype), memory.array(half, row.dtype)
        self.source[:] = row[:half]
        self.times = 20_000_000 // half
        self.cells = half * self.times

    def copy(self) -> None:
        """Copy by the C library."""
        for _ in range(self.times):
            np.copyto(self.target, self.source)

    def copy_compiled(self) -> None:
        """Copy by a compiled loop."""
        _copy(self.source, self.target, self.times)


class Shifts:
    """Moves a row within itself by the size of each candidate, as a sweep without gains would."""

    def __init__(self, raw: RawSweep) -> None:
        self.row = Lease(raw.row.nbytes + 64).array(raw.row.size, raw.row.dtype)
        self.row[:] = 0
        self.sizes = (raw.rows.size * raw.row.itemsize).tolist()
        self.size_bytes = raw.row.nbytes
        self.cells = sum(self.size_bytes - size for size in self.sizes) // raw.row.itemsize

    def shift(self) -> None:
        """Move by the C library, downwards as sweeps do."""
        start = self.row.ctypes.data
        for size in self.sizes:
            ctypes.memmove(start + size, start, self.size_bytes - size)


@numba.njit
def _copy(source: NDArray[Any], target: NDArray[Any], times: int) -> None:
    for _ in range(times):
        for c in range(source.size):
            target[c] = source[c]


@numba.njit
def add_one(row: NDArray[Any], times: int) -> None:
    """Read and write every cell in place: the least that a pass can do."""
    for _ in range(times):
        for c in range(row.size):
            row[c] += 1
