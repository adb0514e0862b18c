"""The least slots with which blocks can be run again, and the needs that all kernels share.

A range ``[s, e]`` is blocks s..e-1, run again in backward from their input. ``block_terms`` and
``cut_terms`` are the two cases of the recurrence in ``haversack_kernels.segments``; the least need
follows from them without a table over memory, exactly. Ranges of equal blocks are the same.
"""

from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import CancelFlag, Int32, Int64, jit
from haversack_kernels.segments_columns import Slots

NEVER = 1 << 62
"""A need that nothing meets: of a range with a block that may not run inside a segment."""


class Ranges(NamedTuple):
    """Hold what is known of blocks s..e-1 at ``[s, e]``; shape ``(blocks + 1, blocks + 1)``.

    ``place`` is the last start of equal blocks; ranges with the same have the same ``row`` of the
    table over memory, of ``rows`` in all, and row 0 is that of no block. ``least`` is the least
    need.
    """

    place: Int32
    row: Int32
    rows: int
    least: Int64


@jit
def slots_of(table: Slots, size_bytes: int) -> int:
    """Round the bytes of one moment to slots."""
    return int((size_bytes + table.slack) // table.unit)


@jit
def others_gathered(table: Slots, s: int, e: int) -> int:
    """Return the gathered units of blocks s..e-1 but that of the last, which its base contains."""
    return int(table.gathered_before[max(e - 1, s)] - table.gathered_before[s])


@jit
def block_terms(table: Slots, least: Int64, s: int, e: int, option: int) -> tuple[int, int]:
    """Return the need of starting ``[s, e]`` with block s under ``option``, and what that holds."""
    forward = slots_of(table, table.under[e - 1] + table.forward_peak[option])
    need = max(forward + others_gathered(table, s, e), table.backward[option])
    if e == s + 1:
        return need, 0
    held = table.retained[option] + others_gathered(table, s, s + 2)
    return max(need, held + least[s + 1, e]), held


@jit
def cut_terms(table: Slots, least: Int64, s: int, cut: int, e: int, peak: int) -> tuple[int, int]:
    """Return the need of starting ``[s, e]`` with a segment up to ``cut``, and what that holds.

    ``peak`` is the highest of a plain forward of the segment, in bytes.
    """
    forward = slots_of(table, table.under[e - 1] + peak) + others_gathered(table, s, e)
    held = table.boundary[cut - 1] + table.gathered_before[cut] - table.gathered_before[s]
    return max(forward, least[s, cut], held + least[cut, e]), held


@jit
def cheapest_inside(table: Slots, s: int) -> int:
    """Return the least extra of the options of block s that may run inside a segment, or -1."""
    least = -1
    for option in range(table.offsets[s], table.offsets[s + 1]):
        if table.inside[option] and (least < 0 or table.extra[option] < least):
            least = table.extra[option]
    return least


@jit
def ranges(table: Slots, kinds: Int64, cancel: CancelFlag) -> Ranges:
    """Find the least needs of all ranges, unless cancelled; blocks of one kind are equal."""
    n = kinds.size
    place = _places(kinds)
    row, rows = _numbered(place)
    least = np.zeros((n + 1, n + 1), np.int64)
    found = Ranges(place, row, rows, least)
    for s in range(n - 1, -1, -1):
        if cancel[0] != 0:
            break
        for e in range(s + 1, n + 1):
            twin = place[s, e]
            if twin == s:
                least[s, e] = _least(table, least, s, e)
            else:
                least[s, e] = least[twin, twin + e - s]
    return found


@jit
def _places(kinds: Int64) -> Int32:
    """Find the last place of blocks equal to s..e-1, for every s and e."""
    n = kinds.size
    place = np.zeros((n + 1, n + 1), np.int32)
    agree = np.zeros(n + 1, np.int64)  # how many blocks from s on equal those from here on
    for s in range(n - 1, -1, -1):
        for other in range(s, n):
            agree[other] = agree[other + 1] + 1 if kinds[other] == kinds[s] else 0
        length = 0
        for other in range(n - 1, s - 1, -1):
            while length < agree[other]:
                length += 1
                place[s, s + length] = other
    return place


@jit
def _numbered(place: Int32) -> tuple[Int32, int]:
    """Number the rows; those of one end stand together, since they are read one after another."""
    n = place.shape[0] - 1
    row, rows = np.zeros((n + 1, n + 1), np.int32), 1
    for e in range(1, n + 1):
        for s in range(e):
            if place[s, e] == s:
                row[s, e] = rows
                rows += 1
    for s in range(n):
        for e in range(s + 1, n + 1):
            row[s, e] = row[place[s, e], place[s, e] + e - s]
    return row, rows


@jit
def _least(table: Slots, least: Int64, s: int, e: int) -> int:
    found = NEVER
    for option in range(table.offsets[s], table.offsets[s + 1]):
        if table.inside[option]:
            found = min(found, block_terms(table, least, s, e, option)[0])
    peak = table.plain_peak[s]
    for cut in range(s + 1, e):
        found = min(found, cut_terms(table, least, s, cut, e, peak)[0])
        peak = max(peak, table.carried[cut])
    return found


@jit
def first_block_terms(table: Slots, least: Int64, j: int, option: int) -> tuple[int, int]:
    """Return what ``block_terms`` does, for blocks from j on in the first forward.

    ``least`` has shape ``(blocks + 1,)`` here.
    """
    need = max(table.save_forward[option], table.backward[option])
    if j + 2 == table.offsets.size:
        return need, 0
    held = table.retained[option]
    return max(need, held + least[j + 1]), held


@jit
def first_cut_terms(
    table: Slots, inner: Int64, least: Int64, j: int, cut: int, forward: int
) -> tuple[int, int]:
    """Return what ``cut_terms`` does, for a first segment up to ``cut`` in the first forward."""
    need = max(forward, inner[j, cut])
    if cut + 1 == table.offsets.size:
        return need, 0
    held = table.boundary[cut - 1]
    return max(need, held + least[cut]), held


@jit
def least_from(table: Slots, inner: Int64) -> Int64:
    """Return the least slots for a step of blocks j on, shape ``(blocks + 1,)``."""
    n = table.offsets.size - 1
    least = np.zeros(n + 1, np.int64)
    for j in range(n - 1, -1, -1):
        least[j] = NEVER
        for option in range(table.offsets[j], table.offsets[j + 1]):
            least[j] = min(least[j], first_block_terms(table, least, j, option)[0])
        forward = table.first[j]
        for cut in range(j + 1, n + 1):
            need, _ = first_cut_terms(table, inner, least, j, cut, forward)
            least[j] = min(least[j], need)
            if cut < n:
                forward = max(forward, table.first_carried[cut])
    return least


@jit
def enough(table: Slots) -> int:
    """Return the slots from which on every block runs under its cheapest option."""
    n = table.offsets.size - 1
    enough = np.zeros(n + 1, np.int64)
    for j in range(n - 1, -1, -1):
        enough[j] = NEVER
        rows = range(table.offsets[j], table.offsets[j + 1])
        cheapest = min([table.extra[option] for option in rows])
        for option in rows:
            if table.extra[option] == cheapest:
                enough[j] = min(enough[j], first_block_terms(table, enough, j, option)[0])
    return int(enough[0])
