"""One capacity by the dense DP, in as much memory as there is: all decisions, or 1 MB of them.

The chunks are dealt in turn to two halves, and each half gets a row of its own, smallest first. The
capacity is shared out where the two rows add up to most, and each half is traced back from its
share as far as its decisions are kept: the largest chunks, which come last, first. What is left of
a half is a smaller problem of the same kind (Hirschberg's halving). With room for all decisions
nothing is left.

Each half needs few cells: below, both rows have hardly begun to reach; above, only cells from which
the rest can fill the capacity count. With a capacity of half of all sizes that is a third of the
table. Each level of halving costs half of the one before, so 1 MB takes less than twice the time.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import Int64
from haversack_kernels.arena import Lease
from haversack_kernels.dense_items import Items
from haversack_kernels.dense_rows import (
    BEYOND_INT64,
    SCRATCH_WORDS,
    CellType,
    Watch,
    keeping,
    new_bits,
    new_row,
    plan_rows,
    row_cells,
    run,
    words,
)
from haversack_kernels.dense_sweep import Cells, Rows, UInt64
from haversack_kernels.dense_trace import join, trace

LEAF_WORDS = 1_000_000 // 8 - SCRATCH_WORDS
"""Words of decisions that are kept where memory is to be spared: 1 MB with the scratch."""


class _Table(NamedTuple):
    """Hold what the halves are swept with and ``taken``, the answer for each chunk so far."""

    items: Items
    kind: CellType
    cells: tuple[Cells, Cells]
    bits: UInt64
    watch: Watch
    taken: NDArray[np.bool_]


class _Problem(NamedTuple):
    """Hold the chunks to choose from, smallest first, and the capacity there is for them."""

    chunks: Int64
    capacity: int


class _Half(NamedTuple):
    """Hold every other chunk of a problem, its row's plan, and from where on bits are kept."""

    chunks: Int64
    rows: Rows
    kept_from: int


def all_words(items: Items, kind: CellType) -> int:
    """Return the words that keep every decision of the first two halves."""
    plans = _plans(items, _whole(items), kind)
    return sum(int(words(rows).sum()) for rows in plans)


def best_chunks(
    items: Items, kind: CellType, word_count: int, lease: Lease, watch: Watch
) -> NDArray[np.bool_]:
    """Return which chunks gain most within ``items.capacity``, keeping ``word_count`` words."""
    cells = new_row(lease, items.capacity, kind), new_row(lease, items.capacity, kind)
    taken = np.zeros(items.size.size, dtype=np.bool_)
    table = _Table(items, kind, cells, new_bits(lease, word_count), watch, taken)
    problems = [_whole(items)]
    while problems:
        chunks, capacity = problems.pop()
        chunks = chunks[: int(np.searchsorted(items.size[chunks], capacity, "right"))]
        if items.size[chunks].sum() <= capacity:
            taken[chunks] = True
        else:
            problems += _solve(table, _Problem(chunks, capacity))
    return taken


def _whole(items: Items) -> _Problem:
    return _Problem(np.arange(items.size.size), items.capacity)


def _plans(items: Items, problem: _Problem, kind: CellType) -> tuple[Rows, Rows]:
    front, back = problem.chunks[::2], problem.chunks[1::2]
    front_size, back_size = items.size[front], items.size[back]
    return (
        plan_rows(front_size, items.gain[front], problem.capacity, int(back_size.sum()), kind),
        plan_rows(back_size, items.gain[back], problem.capacity, int(front_size.sum()), kind),
    )


def _solve(table: _Table, problem: _Problem) -> list[_Problem]:
    """Settle the chunks whose decisions are kept; return what is left of each half, if anything."""
    front, back = _swept(table, problem)
    front_size, back_size = int(front.rows.size.sum()), int(back.rows.size.sum())
    first, last = max(problem.capacity - back_size, 0), min(problem.capacity, front_size)
    share, overflows = join(*table.cells, problem.capacity, first, last)
    if overflows:
        raise OverflowError(BEYOND_INT64)
    return _traced(table, front, share) + _traced(table, back, problem.capacity - share)


def _swept(table: _Table, problem: _Problem) -> tuple[_Half, _Half]:
    """Sweep each half into its row; the front keeps bits in half the room, or what back leaves."""
    plans = _plans(table.items, problem, table.kind)
    table.watch.progress[1] += problem.chunks.size
    room = table.bits.size - SCRATCH_WORDS
    front_room = max(room // 2, room - int(words(plans[1]).sum()))
    front, used = _swept_half(table, problem, plans[0], 0, SCRATCH_WORDS, front_room)
    back, _ = _swept_half(table, problem, plans[1], 1, used, table.bits.size - used)
    return front, back


def _swept_half(
    table: _Table, problem: _Problem, rows: Rows, which: int, first_word: int, room: int
) -> tuple[_Half, int]:
    """Sweep a half, keeping bits from ``first_word`` on; return it and the next word."""
    kept_from = _kept_from(rows, room)
    rows, next_word = keeping(rows, kept_from, first_word)
    row = table.cells[which][: row_cells(problem.capacity)]
    run(row, rows, table.bits, table.kind, table.watch)
    return _Half(problem.chunks[which::2], rows, kept_from), next_word


def _kept_from(rows: Rows, word_count: int) -> int:
    """Return the first of as many last rows as keep their bits in ``word_count``."""
    from_here_on = np.cumsum(words(rows)[::-1])
    return rows.size.size - int(np.searchsorted(from_here_on, word_count, "right"))


def _traced(table: _Table, half: _Half, share: int) -> list[_Problem]:
    left = np.array([share])
    decisions = np.zeros((1, half.chunks.size), dtype=np.bool_)
    trace(half.rows, half.kept_from, table.bits, left, decisions)
    table.taken[half.chunks[decisions[0]]] = True
    return [_Problem(half.chunks[: half.kept_from], int(left[0]))] if half.kept_from else []
