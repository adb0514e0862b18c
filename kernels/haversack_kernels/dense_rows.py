"""Which cells a row of the dense DP needs, of which type, and how its candidates are swept.

Two windows, both exact. From above: cells beyond ``reach``, where all candidates so far fit
together, hold the sum of their gains and need no sweep; smallest first, ``reach`` grows slowly and
spares up to half of all cells. From below, for one capacity: cells from which not even all later
candidates lead up to the capacity are never read.

Types: int32 while the gains sum up to less than 2^31, at twice the speed. Beyond, int64 where the
CPU has its maximum as a vector instruction (AVX-512), else float64, which is exact up to 2^53.
Measured in Gcell/s on a Zen 4 core, 200 x 100k, int32 / int64 / float64: 16 / 7.3 / 7.1 with
AVX-512, 11 / 2.0 / 4.2 with AVX2, 4.2 / 1.3 / 2.1 with SSE2 alone.

Memory: a row of ``capacity`` cells, and one bit per cell swept. Knows nothing of candidates'
indices.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from haversack_kernels._jit import MAX_INT64, CancelFlag, Int64, total
from haversack_kernels.arena import Lease, aligned
from haversack_kernels.dense_sweep import (
    BLOCK,
    CANCELLED,
    MARGIN,
    OVERFLOW,
    WHOLE_ROW,
    Cells,
    Rows,
    UInt64,
    sweep,
)
from haversack_kernels.dense_target import has_avx512
from haversack_kernels.errors import SolveCancelled

ROW_CACHE_BYTES = 8 << 20
"""A longer row is swept by wavefronts. Below they lose: up to a third of int32's speed in L2."""

WAVE_BYTES = 4 << 20
"""What the candidates of a wavefront may trail by in all: a part of L3 that one core can count on.

With rows of 10M cells and sizes of 2000 / 20k / 100k that makes 4.7 / 3.8 / 2.6 Gcell/s int64, of
0.97 one candidate at a time; within an L2 of 1 MiB it is 4.3 / 2.9 / 1.3.
"""

WAVE_CHUNK_SHIFT = 6
"""Wavefronts move by chunks of 2^6 blocks: shorter ones start over too often, also writing bits."""

BEYOND_INT64 = "the optimum is above 2^63-1: scale the gains down"

SCRATCH_WORDS = 512
"""Where the words of rows go whose bits are not kept: over and over to the first 4 KiB."""


class CellType(NamedTuple):
    """Say what a cell is, the most it can hold, and whether gains may sum up to more."""

    dtype: Any
    most: int
    may_overflow: bool


@dataclass(slots=True)
class Watch:
    """Hold what a caller sees of a solve, and may set: ``progress`` is [rows done, rows known of].

    ``cells`` counts what was swept.
    """

    cancel: CancelFlag
    progress: Int64
    cells: int = 0


def cell_type(gains: Int64) -> CellType:
    """Return the fastest type that holds every sum of ``gains`` exactly."""
    most = total(gains)
    if most < 2**31:
        return CellType(np.int32, 2**31 - 1, may_overflow=False)
    if most < 2**53 and not has_avx512():
        return CellType(np.float64, 2**53, may_overflow=False)
    return CellType(np.int64, MAX_INT64, may_overflow=most > MAX_INT64)


def plan_rows(size: Int64, gain: Int64, capacity: int, later: int, kind: CellType) -> Rows:
    """Return the windows of each row for ``capacity``; no row's bits are kept.

    ``later`` is the size of all candidates that come after these. Sizes are from 1 to ``capacity``
    and sum up to less than 2^63.
    """
    reach, gains = np.cumsum(size), gain.astype(kind.dtype)
    still_to_come = later + (reach[-1] if reach.size else 0) - reach
    return Rows(
        size=size,
        gain=gains,
        before=np.cumsum(gains, dtype=kind.dtype) - gains,
        low=np.maximum(size, capacity - still_to_come),
        high=np.minimum(reach, capacity),
        place=np.zeros(size.size, np.int64),
        mask=np.full(size.size, SCRATCH_WORDS - 1),
    )


def all_rows(size: Int64, gain: Int64, capacity: int, kind: CellType) -> Rows:
    """Return the windows of each row for every capacity up to ``capacity``."""
    return plan_rows(size, gain, capacity, capacity, kind)


def words(rows: Rows) -> Int64:
    """Return the words of decisions of each row, were they kept."""
    return (rows.high >> 6) - (rows.low >> 6) + 1


def keeping(rows: Rows, kept_from: int, first_word: int) -> tuple[Rows, int]:
    """Let the rows from ``kept_from`` on keep their bits, from ``first_word``; return the next."""
    count = words(rows)[kept_from:]
    next_words = first_word + np.cumsum(count)
    place, mask = rows.place.copy(), rows.mask.copy()
    place[kept_from:] = next_words - count - (rows.low[kept_from:] >> 6)
    mask[kept_from:] = -1
    return rows._replace(place=place, mask=mask), int(next_words[-1]) if count.size else first_word


def row_cells(capacity: int) -> int:
    """Return the length of a row for capacities up to ``capacity``: whole blocks and a margin."""
    return MARGIN + (capacity // BLOCK + 1) * BLOCK


def row_bytes(capacity: int, kind: CellType) -> int:
    """Return what ``new_row`` takes of a lease."""
    return aligned(row_cells(capacity) * np.dtype(kind.dtype).itemsize)


def bits_bytes(word_count: int) -> int:
    """Return what ``new_bits`` takes of a lease."""
    return aligned((SCRATCH_WORDS + word_count) * 8)


def new_row(lease: Lease, capacity: int, kind: CellType) -> Cells:
    """Return a row for capacities up to ``capacity``."""
    return lease.array(row_cells(capacity), kind.dtype)


def new_bits(lease: Lease, word_count: int) -> UInt64:
    """Return the scratch and ``word_count`` words behind it."""
    return lease.array(SCRATCH_WORDS + word_count, np.uint64)


def run(row: Cells, rows: Rows, bits: UInt64, kind: CellType, watch: Watch) -> None:
    """Sweep all rows; raise ``OverflowError`` or ``SolveCancelled`` if that ends early."""
    wide = row.nbytes > ROW_CACHE_BYTES and not kind.may_overflow
    shift = WAVE_CHUNK_SHIFT if wide else WHOLE_ROW
    ends = wave_ends(rows.size, row.itemsize) if wide else np.arange(1, rows.size.size + 1)
    status, done = sweep(row, rows, ends, shift, bits, kind.most, watch.cancel, watch.progress)
    watch.cells += BLOCK * int(words(rows)[:done].sum())
    if status == CANCELLED:
        raise SolveCancelled(watch.cells)
    if status == OVERFLOW:
        raise OverflowError(BEYOND_INT64)


def wave_ends(size: Int64, cell_bytes: int) -> Int64:
    """Cut the rows into groups that trail by ``WAVE_BYTES`` at most, or of one row."""
    chunk = BLOCK << WAVE_CHUNK_SHIFT
    behind = np.cumsum(-(-size // chunk)) * chunk * cell_bytes
    ends: list[int] = []
    begin = 0
    while begin < size.size:
        begin = int(np.searchsorted(behind, behind[begin] + WAVE_BYTES, "right"))
        ends.append(begin)
    return np.array(ends, dtype=np.int64)
