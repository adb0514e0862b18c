"""What the knapsack kernels are told: tables of candidates, groups and grids, for many problems.

Problems of a batch are solved side by side, step by step: a step of a problem is one group of its
candidates, smallest first. Knows no device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import MAX_INT64, Int64, total
from haversack_kernels.cuda.knapsack_kernels import (
    BEGIN,
    END,
    FILLED,
    FIRST,
    HALO,
    ONE,
    PITCH,
    START,
    THREADS_OF_ONE,
    TOP,
    WORD,
)
from haversack_kernels.cuda.memory import TABLE_BYTES
from haversack_kernels.cuda.tiling import ONE_CANDIDATE_COST, Group, Tiling, groups, threads_for
from haversack_kernels.dense_items import Items
from haversack_kernels.dense_memory import MOST_CELLS, Need
from haversack_kernels.dense_rows import CellType, all_rows, keeping, plan_rows, words
from haversack_kernels.dense_sweep import BLOCK, Rows


class Problem(NamedTuple):
    """Hold reduced candidates, and the windows of their rows as on the CPU."""

    items: Items
    rows: Rows
    may_overflow: bool

    @property
    def cells(self) -> int:
        """Return the cells of a row, in whole blocks."""
        return (self.items.capacity // BLOCK + 1) * BLOCK


class Step(NamedTuple):
    """Hold the grids of a step, per problem: for one candidate, and for groups; and its size."""

    one_blocks: int
    tiles: int
    rows: int
    cells: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Tables:
    """Hold what the kernels read, columns as in ``knapsack_kernels``.

    ``spans`` has shape ``(problems, 2)``: the candidates of each. The row of problem ``p`` is
    ``cells[buffer[p], start[p]:]`` at the end.
    """

    kind: CellType
    rows: Int64
    gains: NDArray[Any]
    before: NDArray[Any]
    groups: Int64
    spans: Int64
    start: Int64
    buffer: Int64
    steps: list[Step]
    threads: int
    cells: int
    words: int

    @property
    def least(self) -> Any:
        """Return what no sum of gains lifts to zero, as a cell."""
        return np.dtype(self.kind.dtype).type(-self.kind.most - 1)

    @property
    def shared_bytes(self) -> int:
        """Return the shared memory of a block of ``sweep_group``."""
        return PITCH * (self.threads + 1) * int(np.dtype(self.kind.dtype).itemsize)


def cell_type(gain_sum: int) -> CellType:
    """Return int32 while it holds the sum of all gains, else int64."""
    if gain_sum < 2**31:
        return CellType(np.int32, 2**31 - 1, may_overflow=False)
    return CellType(np.int64, MAX_INT64, may_overflow=gain_sum > MAX_INT64)


def for_all(items: Items, kind: CellType) -> Problem:
    """Return the problem of every capacity at once."""
    rows = all_rows(items.size, items.gain, items.capacity, kind)
    return Problem(items, rows, total(items.gain) > MAX_INT64)


def for_one(items: Items, kind: CellType) -> Problem:
    """Return the problem of one capacity, whose rows skip cells that nothing reads."""
    rows = plan_rows(items.size, items.gain, items.capacity, 0, kind)
    return Problem(items, rows, total(items.gain) > MAX_INT64)


def need_for_all(items: Items) -> Need:
    """Return the device memory that the sweep for all capacities takes."""
    return _need(items, for_all)


def need_for_one(items: Items) -> Need:
    """Return the device memory that the sweep for one capacity takes."""
    return _need(items, for_one)


def _need(items: Items, problem: Callable[[Items, CellType], Problem]) -> Need:
    kind, count = cell_type(total(items.gain)), 0
    if items.capacity <= MOST_CELLS:
        count = int(words(problem(items, kind).rows).sum())
    cells = (items.capacity // BLOCK + 1) * BLOCK
    rows = 2 * cells * np.dtype(kind.dtype).itemsize
    return Need(count, rows + 8 * count + TABLE_BYTES * items.size.size)


def tabled(problems: Sequence[Problem], kind: CellType, tiling: Tiling) -> Tables:
    """Return the tables of problems whose cells are of one type."""
    threads = threads_for([problem.cells for problem in problems], tiling)
    counts = [problem.items.size.size for problem in problems]
    begins = np.cumsum([0, *counts])
    start = np.cumsum([0, *(problem.cells for problem in problems)])
    kept, next_word = [], 0
    for problem in problems:
        rows, next_word = keeping(problem.rows, 0, next_word)
        kept.append(rows)
    cut = [_groups(problem, WORD * threads, tiling) for problem in problems]
    table, steps = _steps(kept, cut, begins, start, WORD * threads)
    return Tables(
        kind=kind,
        rows=np.concatenate([_row_table(rows) for rows in kept]),
        gains=np.concatenate([rows.gain for rows in kept]),
        before=np.concatenate([rows.before for rows in kept]),
        groups=table,
        spans=np.stack([begins[:-1], begins[1:]], axis=1),
        start=start[:-1],
        buffer=np.array([len(groups) & 1 for groups in cut]),
        steps=steps,
        threads=threads,
        cells=int(start[-1]),
        words=next_word,
    )


def _groups(problem: Problem, block_cells: int, tiling: Tiling) -> list[Group]:
    # A sum of gains that may overflow is swept one candidate at a time, and checked at each.
    fuse = tiling.fuse and not problem.may_overflow
    size = problem.items.size
    return groups(size, 1.0, ONE_CANDIDATE_COST, problem.cells, block_cells, fuse=fuse)


def _row_table(rows: Rows) -> Int64:
    low, high = 2 * (rows.low // BLOCK), 2 * (rows.high // BLOCK) + 1
    return np.stack([rows.size, low, high, 2 * rows.place, rows.high], axis=1)


def _steps(
    kept: list[Rows], cut: list[list[Group]], begins: Int64, start: Int64, block_cells: int
) -> tuple[Int64, list[Step]]:
    """Return the table of groups, of shape ``(steps, problems, columns)``, and the steps."""
    table = np.zeros((max(map(len, cut)), len(cut), START + 1), dtype=np.int64)
    sums = np.zeros((4, table.shape[0]), dtype=np.int64)
    for p, (rows, own_groups) in enumerate(zip(kept, cut, strict=True)):
        own, used = table[: len(own_groups), p], sums[:, : len(own_groups)]
        _fill(own, rows, own_groups)
        own[:, [BEGIN, END]] += begins[p]
        own[:, START] = start[p]
        _count(own, rows, own_groups, block_cells, used)
    return table, [Step(*each) for each in zip(*sums.tolist(), strict=True)]


def _fill(own: Int64, rows: Rows, own_groups: list[Group]) -> None:
    """Write a problem's groups; candidates are counted from its first."""
    begin, end, halo = np.array(
        [(g.begin, g.end, ONE if g.halo is None else g.halo) for g in own_groups], dtype=np.int64
    ).T
    top = (rows.high[end - 1] // BLOCK + 1) * BLOCK
    own[:, BEGIN], own[:, END], own[:, HALO], own[:, TOP] = begin, end, halo, top
    own[1:, FILLED] = top[:-1]
    # The buffer written to holds the row of two steps ago, up to its end: the first cells that the
    # last step changed, or that lie beyond that end, are missing. At first, all.
    changed = rows.low[begin[1:-1]] // BLOCK * BLOCK
    own[2:, FIRST] = np.minimum(changed, top[:-2])


def _count(own: Int64, rows: Rows, own_groups: list[Group], block_cells: int, sums: Int64) -> None:
    """Raise the columns of ``Step`` to what a problem's groups need."""
    one_blocks, tiles, rows_done, cells = sums
    length, alone = own[:, TOP] - own[:, FIRST], own[:, HALO] == ONE
    blocks = -(-length // (THREADS_OF_ONE * WORD))
    np.maximum(one_blocks, np.where(alone, blocks, 0), out=one_blocks)
    tile = block_cells - np.maximum(own[:, HALO], 0)
    np.maximum(tiles, np.where(alone, 0, -(-length // tile)), out=tiles)
    rows_done += own[:, END] - own[:, BEGIN]
    cells += np.add.reduceat(words(rows), [group.begin for group in own_groups]) * BLOCK
