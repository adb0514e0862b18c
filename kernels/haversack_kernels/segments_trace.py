"""The way back through the table of ``haversack_kernels.segments_table``, to a tree in preorder.

At every node the first case whose cell adds up is taken: options from the lowest on, then segments
from the shortest on.
"""

import numpy as np

from haversack_kernels._jit import Int64, jit
from haversack_kernels.segments_columns import Slots
from haversack_kernels.segments_least import (
    Ranges,
    block_terms,
    cheapest_inside,
    cut_terms,
    first_block_terms,
    first_cut_terms,
)
from haversack_kernels.segments_schedule import FIRST, LAST


@jit
def trace(
    table: Slots, known: Ranges, least: Int64, cells: Int64, best: Int64, slots: int
) -> Int64:
    """Return the nodes of the schedule that ``best[0, slots]`` stands for, a row for each."""
    n = table.offsets.size - 1
    # Segments differ in their blocks and do not cross, so there are 2n - 1 at most.
    nodes = np.empty((3 * n, 4), np.int64)
    count, j, m = 0, 0, slots
    while j < n:
        option, cut, held = _first_step(table, known, least, cells, best, j, m)
        _write(nodes, count, j, cut - 1, option, -1)
        count += 1
        if option < 0:
            count = _trace_inside(table, known, cells, m, nodes, count)
        j, m = cut, m - held
    return nodes[:count]


@jit
def _trace_inside(
    table: Slots, known: Ranges, cells: Int64, slots: int, nodes: Int64, count: int
) -> int:
    """Add the nodes inside the segment that was added last; return the number of nodes."""
    waiting = np.empty((table.offsets.size, 4), np.int64)  # range, segment around, slots
    _write(waiting, 0, nodes[count - 1, FIRST], nodes[count - 1, LAST] + 1, count - 1, slots)
    left = 1
    while left > 0:
        left -= 1
        s, e, parent, m = waiting[left, 0], waiting[left, 1], waiting[left, 2], waiting[left, 3]
        while s < e:
            option, cut, held = _step(table, known, cells, s, e, m)
            _write(nodes, count, s, cut - 1, option, parent)
            count += 1
            if option < 0:
                _write(waiting, left, cut, e, parent, m - held)
                left += 1
                e, parent = cut, count - 1
            else:
                s, m = cut, m - held
    return count


@jit
def _write(rows: Int64, row: int, first: int, second: int, third: int, fourth: int) -> None:
    rows[row, 0], rows[row, 1] = first, second
    rows[row, 2], rows[row, 3] = third, fourth


@jit
def _step(
    table: Slots, known: Ranges, cells: Int64, s: int, e: int, m: int
) -> tuple[int, int, int]:
    """Return how ``[s, e]`` starts: the option or -1, where that ends, and the slots it holds."""
    target, cheapest = cells[known.row[s, e], m], cheapest_inside(table, s)
    for option in range(table.offsets[s], table.offsets[s + 1]):
        if table.inside[option]:
            need, held = block_terms(table, known.least, s, e, option)
            add = table.extra[option] - cheapest
            if need <= m and cells[known.row[s + 1, e], m - held] + add == target:
                return option, s + 1, held
    peak, time = table.plain_peak[s], table.time[s]
    for cut in range(s + 1, e):
        need, held = cut_terms(table, known.least, s, cut, e, peak)
        if need <= m:
            rest, own = cells[known.row[cut, e], m - held], cells[known.row[s, cut], m]
            if rest + own + time == target:
                return -1, cut, held
        peak, time = max(peak, table.carried[cut]), time + table.time[cut]
    raise AssertionError("no case of the recurrence gives the cell")


@jit
def _first_step(
    table: Slots, known: Ranges, least: Int64, cells: Int64, best: Int64, j: int, m: int
) -> tuple[int, int, int]:
    """Return what ``_step`` does, for blocks from j on in the first forward."""
    for option in range(table.offsets[j], table.offsets[j + 1]):
        need, held = first_block_terms(table, least, j, option)
        if need <= m and best[j + 1, m - held] + table.extra[option] == best[j, m]:
            return option, j + 1, held
    forward, once = table.first[j], 0
    for cut in range(j + 1, table.offsets.size):
        once += table.time[cut - 1] + cheapest_inside(table, cut - 1)
        need, held = first_cut_terms(table, known.least, least, j, cut, forward)
        if need <= m and best[cut, m - held] + cells[known.row[j, cut], m] + once == best[j, m]:
            return -1, cut, held
        if cut + 1 < table.offsets.size:
            forward = max(forward, table.first_carried[cut])
    raise AssertionError("no case of the recurrence gives the cell")
