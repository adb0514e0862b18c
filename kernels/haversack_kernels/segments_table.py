"""The table over memory: what blocks s..e-1 recompute at least, for every number of slots.

A row per range, a cell per slot: the time beyond one pass of forwards and the cheapest options, so
that two cells and a segment's plain forward add up to a cell. From a range's least need on a row
falls. Choices are not stored: they are found again on the way back. The recurrence stands in
``haversack_kernels.segments``.
"""

import numpy as np

from haversack_kernels._jit import MAX_INT64, CancelFlag, Int64, jit
from haversack_kernels.segments_columns import Slots
from haversack_kernels.segments_least import (
    Ranges,
    block_terms,
    cheapest_inside,
    cut_terms,
    first_block_terms,
    first_cut_terms,
)

STRIDE = 32
"""Cells that are left out together where they cannot fall: about as many as four vector steps."""


@jit
def fill(table: Slots, known: Ranges, cells: Int64, cancel: CancelFlag) -> int:
    """Fill all rows; return the number of ranges done before the flag was set, or all of them."""
    n, width, done = table.offsets.size - 1, cells.shape[1], 0
    for m in range(width):
        cells[0, m] = 0
    for s in range(n - 1, -1, -1):
        for e in range(s + 1, n + 1):
            if known.place[s, e] == s and known.least[s, e] < width:
                if cancel[0] != 0:
                    return done
                _fill_row(table, known, s, e, cells)
            done += 1
    return done


@jit
def _fill_row(table: Slots, known: Ranges, s: int, e: int, cells: Int64) -> None:
    width, row = cells.shape[1], cells[known.row[s, e]]
    for m in range(width):
        row[m] = MAX_INT64
    rest, cheapest = cells[known.row[s + 1, e]], cheapest_inside(table, s)
    for option in range(table.offsets[s], table.offsets[s + 1]):
        if table.inside[option]:
            low, held = block_terms(table, known.least, s, e, option)
            if low < width:
                add = table.extra[option] - cheapest
                relax(row[low:], rest[low - held : width - held], cells[0, low:], add)
    peak, time, high = table.plain_peak[s], table.time[s], width
    for cut in range(s + 1, e):
        # Rows fall with memory, and this segment costs its plain forward at least.
        while high > known.least[s, e] and row[high - 1] <= time:
            high -= 1
        if high == known.least[s, e]:
            return
        low, held = cut_terms(table, known.least, s, cut, e, peak)
        if low < high:
            rest, own = cells[known.row[cut, e]], cells[known.row[s, cut]]
            end = _end(row, rest, held, own, time, low, high)
            relax(row[low:end], rest[low - held : end - held], own[low:end], time)
        peak, time = max(peak, table.carried[cut]), time + table.time[cut]


@jit
def _end(row: Int64, rest: Int64, held: int, own: Int64, time: int, low: int, high: int) -> int:
    """Return where to end: from there on ``row`` is below all that the sum is up to there."""
    least = rest[high - 1 - held] + own[high - 1] + time
    while high - STRIDE > low and row[high - STRIDE] <= least:
        high -= STRIDE
        least = rest[high - 1 - held] + own[high - 1] + time
    return high


@jit
def relax(row: Int64, first: Int64, second: Int64, add: int) -> None:
    """Lower each cell of ``row`` to ``first + second + add`` where that is less."""
    for m in range(row.size):
        row[m] = min(row[m], first[m] + second[m] + add)


@jit
def fill_first(
    table: Slots, known: Ranges, least: Int64, cells: Int64, cancel: CancelFlag
) -> Int64:
    """Return the least extra of a step of blocks j on, at ``[j, slots]``, if not cancelled."""
    n, width = table.offsets.size - 1, cells.shape[1]
    best = np.full((n + 1, width), MAX_INT64)
    for m in range(width):
        best[n, m] = 0
    for j in range(n - 1, -1, -1):
        if cancel[0] != 0:
            break
        for option in range(table.offsets[j], table.offsets[j + 1]):
            low, held = first_block_terms(table, least, j, option)
            if low < width:
                rest = best[j + 1, low - held : width - held]
                relax(best[j, low:], rest, cells[0, low:], table.extra[option])
        forward, once = table.first[j], 0
        for cut in range(j + 1, n + 1):
            once += table.time[cut - 1] + cheapest_inside(table, cut - 1)
            low, held = first_cut_terms(table, known.least, least, j, cut, forward)
            if low < width:
                rest = best[cut, low - held : width - held]
                relax(best[j, low:], rest, cells[known.row[j, cut], low:], once)
            if cut < n:
                forward = max(forward, table.first_carried[cut])
    return best
