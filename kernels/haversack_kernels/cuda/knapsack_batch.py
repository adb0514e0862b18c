"""Many knapsack problems side by side, for one capacity each, in as much memory as there is.

Small problems, which would leave a device idle, fill it together. Problems whose cells are of one
type share launches; a batch that is too large is solved in portions. Knows no kernel.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import MAX_INT64, CancelFlag, Int64, total
from haversack_kernels.arena import ArenaLimitError
from haversack_kernels.cuda.knapsack_sweep import sweep, tiling_for, traced
from haversack_kernels.cuda.knapsack_tables import cell_type, for_one, need_for_one, tabled
from haversack_kernels.cuda.launch import free_bytes, on_device, watch
from haversack_kernels.cuda.tiling import Tiling
from haversack_kernels.dense import Chosen
from haversack_kernels.dense_items import Items, reduced
from haversack_kernels.dense_memory import refusal
from haversack_kernels.dense_rows import BEYOND_INT64, CellType, Watch

MOST_SIDE_BY_SIDE = 1 << 15
"""Problems of one launch; CUDA takes twice as many."""

MOST_STEPS = 1 << 21
"""Problems times steps, of which a table is kept: at most 112 MiB."""


class Candidates(NamedTuple):
    """Hold a problem of a batch: sizes and gains of shape ``(n,)``, and a capacity."""

    sizes: Int64
    gains: Int64
    capacity: int


def solve_batch(
    problems: Sequence[Candidates],
    *,
    unit: int = 1,
    memory_limit_bytes: int | None = None,
    tiling: Tiling | None = None,
    cancel: CancelFlag | None = None,
    progress: Int64 | None = None,
) -> list[Chosen]:
    """Choose for every problem the subset that ``solve_all`` would trace for its capacity.

    The memory limit is what the device has free where none is given. Raises as ``solve_all``; that
    a problem takes too much memory by itself, with its place in the batch.
    """
    watched = watch(cancel, progress)
    items = [reduced(*problem, unit) for problem in problems]
    taken = [np.ones(each.size.size, dtype=np.bool_) for each in items]
    hard = [p for p, each in enumerate(items) if each.capacity < total(each.size)]
    watched.progress[1] = sum(items[p].size.size for p in hard)
    with on_device():
        limit = free_bytes() if memory_limit_bytes is None else memory_limit_bytes
    for p in hard:
        if limit is not None and need_for_one(items[p]).size_bytes > limit:
            raise _refusal(problems, items, p, limit)
    for kind, own in _by_kind(items, hard):
        for portion in _portions(items, own, limit):
            _solve(problems, items, portion, kind, tiling, watched, taken)
    return [_chosen(*each) for each in zip(problems, items, taken, strict=True)]


def _chosen(problem: Candidates, items: Items, taken: NDArray[np.bool_]) -> Chosen:
    mask = items.masks(taken[np.newaxis])[0]
    gain = total(problem.gains[mask])
    if gain > MAX_INT64:
        raise OverflowError(BEYOND_INT64)
    return Chosen(mask, gain)


def _by_kind(items: list[Items], own: list[int]) -> list[tuple[CellType, list[int]]]:
    kinds: dict[CellType, list[int]] = {}
    for p in sorted(own, key=lambda p: items[p].size.size):  # those of a portion end together
        kinds.setdefault(cell_type(total(items[p].gain)), []).append(p)
    return list(kinds.items())


def _portions(items: list[Items], own: list[int], limit: int | None) -> list[list[int]]:
    """Cut problems, in their order, into portions that fit the limit together."""
    portions: list[list[int]] = []
    used = 0
    for p in own:
        need = need_for_one(items[p]).size_bytes
        most = min(MOST_SIDE_BY_SIDE, max(MOST_STEPS // items[p].size.size, 1))
        full = not portions or len(portions[-1]) >= most
        if full or (limit is not None and used + need > limit):
            portions.append([])
            used = 0
        portions[-1].append(p)
        used += need
    return portions


def _solve(
    problems: Sequence[Candidates],
    items: list[Items],
    portion: list[int],
    kind: CellType,
    tiling: Tiling | None,
    watched: Watch,
    taken: list[NDArray[np.bool_]],
) -> None:
    """Write to ``taken`` what each problem of a portion takes; in halves if memory is short."""
    halves = portion[: len(portion) // 2], portion[len(portion) // 2 :]
    try:
        with on_device():
            tables = tabled(
                [for_one(items[p], kind) for p in portion], kind, tiling or tiling_for(kind)
            )
            swept = sweep(tables, watched)
            rooms = np.array([items[p].capacity for p in portion])
            found = traced(swept, np.arange(len(portion)), rooms)
        for k, p in enumerate(portion):
            taken[p] = found[: taken[p].size, k].astype(np.bool_)
        return
    except MemoryError as error:
        if len(portion) == 1:
            raise _refusal(problems, items, portion[0], free_bytes()) from error
    for half in halves:
        _solve(problems, items, half, kind, tiling, watched, taken)


def _refusal(
    problems: Sequence[Candidates], items: list[Items], p: int, limit: int | None
) -> ArenaLimitError:
    """Return the error that names what problem ``p`` needs and the unit that would do."""
    needed = need_for_one(items[p]).size_bytes
    within = needed - 1 if limit is None else min(limit, needed - 1)
    refused = refusal(*problems[p], items[p], need_for_one, within)
    if len(problems) == 1:
        return refused
    return ArenaLimitError(
        f"problems[{p}]: {refused}", needed_bytes=refused.needed_bytes, unit=refused.unit
    )
