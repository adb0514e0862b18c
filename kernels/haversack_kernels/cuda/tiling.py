"""How rows are cut into tiles, and which candidates one launch fuses.

A fused group reads and writes every cell once instead of once per candidate, but each block also
works on a halo as long as the group's sizes together. So a group is worth its length up to a point,
which a cost model finds:

    cost per candidate = (cells worked on + MOVE * (cells read + cells written)) / candidates

in units of one cell worked on in shared memory, per cell written. Knows no kernel and no memory.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from haversack_kernels._jit import Int64

WORD = 32
"""Cells that a thread owns; tiles and halos are whole words."""

MOVE = 2.4
"""Work on cells in shared memory that takes as long as moving one to or from global memory.

On paper, for an H200: 16.5 bytes per clock and multiprocessor from memory; 9 instructions per int32
cell and 12 per int64, counted in the machine code, of 128 per clock, at 60 % of that rate.
"""

ONE_CANDIDATE_COST = 2 * MOVE
"""What a candidate costs by itself: read once, for the shifted read hits the cache, and written."""

SMALLEST_THREADS = 128
"""A tile is not cut below this many words for the sake of more tiles."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiling:
    """Say how many threads a block of a fused group has at most, and whether any is fused."""

    most_threads: int
    multiprocessors: int
    fuse: bool = True


class Group(NamedTuple):
    """Hold candidates ``begin:end`` and their halo in cells: None for one by itself, 0 for a row
    that is one tile.
    """

    begin: int
    end: int
    halo: int | None


def most_threads(cell_bytes: int, shared_bytes: int) -> int:
    """Return the threads of the largest tile that fits ``shared_bytes``, as registers allow."""
    by_registers = 1024 if cell_bytes == 4 else 768
    by_memory = shared_bytes // ((WORD + 1) * cell_bytes) - 1
    return min(by_registers, by_memory // WORD * WORD)


def threads_for(cell_counts: list[int], tiling: Tiling) -> int:
    """Return the threads per block for rows of these lengths, solved side by side.

    As many as hold the longest row, if a block can; else such that the tiles, half of which may be
    halo, give every multiprocessor one.
    """
    wanted = -(-max(cell_counts) // WORD)
    if wanted > tiling.most_threads:
        wanted = max(2 * sum(cell_counts) // (WORD * tiling.multiprocessors), SMALLEST_THREADS)
    return min(-(-wanted // WORD) * WORD, tiling.most_threads)


def groups(
    size: Int64, work: Any, alone: Any, row_cells: int, block_cells: int, *, fuse: bool
) -> list[Group]:
    """Cut candidates, in their order, into groups of least cost.

    ``work`` is what each candidate costs per cell in a group, ``alone`` what it costs by itself:
    a number per candidate, or one for all. A block works on ``block_cells`` cells.
    """
    if fuse and size.size > 0 and row_cells <= block_cells:
        return [Group(0, size.size, 0)]
    works = np.broadcast_to(np.asarray(work, dtype=np.float64), size.shape)
    alones = np.broadcast_to(np.asarray(alone, dtype=np.float64), size.shape)
    sizes, most = size.tolist(), block_cells * 7 // 8
    # What a group costs rises with its sizes, so where these do, the rest goes as one of them does.
    alike = works.strides == alones.strides == (0,) and bool((np.diff(size) >= 0).all())
    cut: list[Group] = []
    begin = 0
    while begin < size.size:
        count = 1
        if fuse and sum(sizes[begin : begin + 2]) <= most:  # else nothing needs to be compared
            here = slice(begin, begin + block_cells)
            count = _best_count(size[here], works[here], alones[here], block_cells)
        if count == 1 and alike:
            return cut + [Group(i, i + 1, None) for i in range(begin, size.size)]
        end = begin + count
        halo = None if count == 1 else -(-sum(sizes[begin:end]) // WORD) * WORD
        cut.append(Group(begin, end, halo))
        begin = end
    return cut


def _best_count(size: Int64, work: Any, alone: Any, block_cells: int) -> int:
    """Return how many candidates from the first on make the cheapest group."""
    spoilt = np.cumsum(size)
    room = int(np.searchsorted(spoilt, block_cells * 7 // 8, "right"))
    if room < 2:
        return 1
    spoilt, count = spoilt[:room], np.arange(1, room + 1)
    tile = block_cells - (-(-spoilt // WORD) * WORD)
    worked = np.cumsum((block_cells - spoilt) * work[:room]) / tile
    cost = (worked + MOVE * (block_cells / tile + 1)) / count
    best = int(cost.argmin())
    return best + 1 if cost[best] < alone[: best + 1].mean() else 1
