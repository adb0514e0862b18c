"""How much memory a dense solve takes, and what to say when that is too much."""

from collections.abc import Callable
from typing import NamedTuple

from haversack_kernels._jit import Int64
from haversack_kernels.arena import ArenaLimitError
from haversack_kernels.dense_halves import LEAF_WORDS, all_words
from haversack_kernels.dense_items import Items, reduced
from haversack_kernels.dense_rows import all_rows, bits_bytes, cell_type, row_bytes, words

MOST_CELLS = 1 << 40
"""A longer row fits nowhere, so the bits beside it are not even counted."""


class Need(NamedTuple):
    """Count the words of decisions, and the bytes of these and the rows."""

    words: int
    size_bytes: int


def need_for_all(items: Items) -> Need:
    """Return what the sweep for all capacities takes: a row and every decision."""
    kind = cell_type(items.gain)
    count = 0
    if items.capacity <= MOST_CELLS:
        count = int(words(all_rows(items.size, items.gain, items.capacity, kind)).sum())
    return Need(count, row_bytes(items.capacity, kind) + bits_bytes(count))


def need_for_one(items: Items) -> Need:
    """Return what one capacity takes: two rows and every decision."""
    kind = cell_type(items.gain)
    count = all_words(items, kind) if items.capacity <= MOST_CELLS else 0
    return Need(count, 2 * row_bytes(items.capacity, kind) + bits_bytes(count))


def need_for_one_sparing(items: Items) -> Need:
    """Return what one capacity takes at least: two rows and 1 MB."""
    count = min(need_for_one(items).words, LEAF_WORDS)
    return Need(count, 2 * row_bytes(items.capacity, cell_type(items.gain)) + bits_bytes(count))


def refusal(
    sizes: Int64,
    gains: Int64,
    capacity: int,
    items: Items,
    need: Callable[[Items], Need],
    limit_bytes: int,
    instead: str | None = None,
) -> ArenaLimitError:
    """Return the error that names the memory needed, the unit that would do, and what would too."""
    needed = need(items).size_bytes
    unit = _coarser_unit(sizes, gains, capacity, items.step, need, limit_bytes)
    what = f"{items.size.size} candidates in {items.capacity + 1} cells of {items.step}"
    remedies = [f"unit={unit}"] if unit is not None else []
    remedies += [instead] if instead is not None else []
    advice = f"{' or '.join(remedies)} would do" if remedies else "no unit would do"
    return ArenaLimitError(
        f"{what} take {needed} bytes of memory, above the limit of {limit_bytes}: {advice}",
        needed_bytes=needed,
        unit=unit,
    )


def _coarser_unit(
    sizes: Int64,
    gains: Int64,
    capacity: int,
    step: int,
    need: Callable[[Items], Need],
    limit_bytes: int,
) -> int | None:
    """Return a multiple of ``step`` with which the need is within the limit, tried out."""
    unit = step
    while unit <= capacity:
        needed = need(reduced(sizes, gains, capacity, unit)).size_bytes
        if needed <= limit_bytes:
            return unit
        unit = step * max(unit // step + 1, unit // step * needed // max(limit_bytes, 1))
    return None
