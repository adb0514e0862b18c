"""Dense knapsack DP on one CPU core: every capacity at once, or one in bounded time and memory.

best[c] is the largest gain of a subset whose sizes sum to at most c:

    best[c] = max(best[c], best[c - size[i]] + gain[i])      for c from the capacity down to size[i]

Time: a cell per candidate and capacity, less what reductions (``dense_items``) and windows
(``dense_rows``) spare; 15 Gcell/s in int32 and 7 in int64 (``dense_sweep``). Memory: for all
capacities a bit per cell swept and one row; for one, two rows and either all bits or 1 MB of them.
The recurrence is Bellman's (1957), halving for memory Hirschberg's (1975).

Knows nothing of names, bytes or budgets. Arrays are the caller's and are left alone.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import MAX_INT64, CancelFlag, Int64, flag, total
from haversack_kernels.arena import Lease
from haversack_kernels.dense_curve import Curve
from haversack_kernels.dense_halves import best_chunks
from haversack_kernels.dense_items import reduced
from haversack_kernels.dense_memory import (
    need_for_all,
    need_for_one,
    need_for_one_sparing,
    refusal,
)
from haversack_kernels.dense_rows import (
    BEYOND_INT64,
    SCRATCH_WORDS,
    Watch,
    all_rows,
    cell_type,
    keeping,
    new_bits,
    new_row,
    run,
)
from haversack_kernels.dense_sweep import MARGIN
from haversack_kernels.errors import SolveCancelled

__all__ = ["Chosen", "Curve", "solve_all", "solve_one", "warm_up"]

DEFAULT_ARENA_LIMIT_BYTES = 256 << 20

NEEDS = {"bits": need_for_one, "hirschberg": need_for_one_sparing}


class Chosen(NamedTuple):
    """Say what is saved and what that is worth; ``mask`` has shape ``(n,)``."""

    mask: NDArray[np.bool_]
    gain: int


def solve_all(
    sizes: Int64,
    gains: Int64,
    capacity: int,
    *,
    unit: int = 1,
    arena_limit_bytes: int = DEFAULT_ARENA_LIMIT_BYTES,
    cancel: CancelFlag | None = None,
    progress: Int64 | None = None,
) -> Curve:
    """Solve for every capacity from 0 to ``capacity`` at once.

    ``sizes`` and ``gains`` have shape ``(n,)``, both >= 0. With ``unit`` above 1 sizes are rounded
    up to it and capacities down, so that no subset is over. ``progress``, two int64, is kept at
    [rows done, rows in all].

    Raises ``ArenaLimitError`` if that takes more memory than ``arena_limit_bytes``,
    ``OverflowError`` if the optimum for ``capacity`` exceeds 2^63-1, ``SolveCancelled`` at the next
    row once ``cancel[0]`` is set.
    """
    watch = _watch(cancel, progress)
    items = reduced(sizes, gains, capacity, unit)
    need = need_for_all(items)
    if need.size_bytes > arena_limit_bytes:
        raise refusal(sizes, gains, capacity, items, need_for_all, arena_limit_bytes)
    kind = cell_type(items.gain)
    rows, _ = keeping(all_rows(items.size, items.gain, items.capacity, kind), 0, SCRATCH_WORDS)
    watch.progress[1] = items.size.size
    lease = Lease(need.size_bytes)
    try:
        row, bits = new_row(lease, items.capacity, kind), new_bits(lease, need.words)
        run(row, rows, bits, kind, watch)
        _representable(int(row[MARGIN + items.capacity]) + items.free_gain)
    except BaseException:
        lease.give_back()
        raise
    return Curve(items, capacity, row, rows, bits, lease)


def solve_one(
    sizes: Int64,
    gains: Int64,
    capacity: int,
    *,
    unit: int = 1,
    memory: Literal["bits", "hirschberg"] = "bits",
    arena_limit_bytes: int = DEFAULT_ARENA_LIMIT_BYTES,
    cancel: CancelFlag | None = None,
    progress: Int64 | None = None,
) -> Chosen:
    """Choose the subset of largest gain whose sizes sum to at most ``capacity``.

    As ``solve_all``, in less time. ``memory="hirschberg"`` keeps at most 1 MB of bits beside the
    two rows and takes up to twice as long; ``progress[1]`` then grows as rows turn out to be needed
    again. Both modes reach the same gain, if not always by the same subset.
    """
    if memory not in NEEDS:
        raise ValueError(f"memory {memory!r} is neither 'bits' nor 'hirschberg'")
    watch, needs = _watch(cancel, progress), NEEDS[memory]
    items = reduced(sizes, gains, capacity, unit)
    taken = np.ones(items.size.size, dtype=np.bool_)
    if items.capacity < total(items.size):
        need = needs(items)
        if need.size_bytes > arena_limit_bytes:
            would_do = need_for_one_sparing(items).size_bytes <= arena_limit_bytes
            instead = "memory='hirschberg'" if would_do else None
            raise refusal(sizes, gains, capacity, items, needs, arena_limit_bytes, instead)
        with Lease(need.size_bytes) as lease:
            taken = best_chunks(items, cell_type(items.gain), need.words, lease, watch)
    mask = items.masks(taken[np.newaxis])[0]
    return Chosen(mask, _representable(total(gains[mask])))


def warm_up() -> None:
    """Compile the kernels for the cell types of this machine, or load them from disk.

    3.5 s of CPU time once, then 0.3 s, most of which is numba's own start.
    """
    sizes = np.arange(1, 9, dtype=np.int64)
    for gains in (sizes, sizes << 32, sizes << 50):  # beyond 2^31, and beyond 2^53
        solve_all(sizes, gains, 20).trace(20)
        solve_one(sizes, gains, 20)


def _representable(gain: int) -> int:
    if gain > MAX_INT64:
        raise OverflowError(BEYOND_INT64)
    return gain


def _watch(cancel: object, progress: object) -> Watch:
    if progress is None:
        progress = np.zeros(2, dtype=np.int64)
    if (
        not isinstance(progress, np.ndarray)
        or progress.dtype != np.int64
        or progress.shape != (2,)
        or not progress.flags.c_contiguous
    ):
        raise TypeError("progress is not a contiguous int64 array of two elements")
    progress[:] = 0
    watch = Watch(flag(cancel), progress)
    if watch.cancel[0]:
        raise SolveCancelled(0)
    return watch
