"""Dense knapsack DP on a CUDA device: every capacity at once, one, or many problems side by side.

The same answers as ``haversack_kernels.dense`` gives for all capacities, bit for bit: rows,
decisions and subsets. Candidates are reduced on the CPU; rows and decisions stay on the device, and
so does the walk back: what comes back is a byte per candidate and answer.

Numba's simulator runs all of it on small problems (``NUMBA_ENABLE_CUDASIM=1``, set before import).
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import MAX_INT64, CancelFlag, Int64, total
from haversack_kernels.arena import ArenaLimitError
from haversack_kernels.cuda.knapsack_batch import Candidates, solve_batch
from haversack_kernels.cuda.knapsack_sweep import Swept, sweep, tiling_for, traced
from haversack_kernels.cuda.knapsack_tables import cell_type, for_all, need_for_all, tabled
from haversack_kernels.cuda.launch import free_bytes, on_device, watch
from haversack_kernels.cuda.tiling import Tiling
from haversack_kernels.dense import Chosen
from haversack_kernels.dense_items import Items, reduced
from haversack_kernels.dense_memory import refusal
from haversack_kernels.dense_rows import BEYOND_INT64

__all__ = ["Candidates", "Chosen", "DeviceCurve", "solve_all", "solve_batch", "solve_one"]


class DeviceCurve:
    """Answers for every capacity up to the one solved for; holds device memory until dropped.

    Has the methods of ``dense_curve.Curve``. ``swept`` is None where no candidate was left.
    """

    def __init__(self, items: Items, capacity: int, swept: Swept | None) -> None:
        self._items, self._swept = items, swept
        self.capacity = capacity

    @property
    def step(self) -> int:
        """Return how many units of size apart two capacities are whose answers can differ."""
        return self._items.step

    @cached_property
    def gains(self) -> Int64:
        """Return the best gain within ``k * step`` for each ``k``, as far as it may grow."""
        return self._row(0, self._items.capacity + 1).astype(np.int64) + self._items.free_gain

    def gain(self, capacity: int) -> int:
        """Return the best gain within ``capacity``."""
        cell = self._cell(capacity)
        return int(self._row(cell, cell + 1)[0]) + self._items.free_gain

    def trace(self, capacity: int) -> NDArray[np.bool_]:
        """Return a subset of that gain within ``capacity`` as a mask of shape ``(n,)``."""
        mask: NDArray[np.bool_] = self.traces([capacity])[0]
        return mask

    def traces(self, capacities: Sequence[int]) -> NDArray[np.bool_]:
        """Return a mask per capacity, of shape ``(capacities, n)``, all walked back together."""
        left = np.array([self._cell(capacity) for capacity in capacities], dtype=np.int64)
        if self._swept is None:
            return self._items.masks(np.zeros((left.size, 0), dtype=np.bool_))
        with on_device():
            taken = traced(self._swept, np.zeros_like(left), left)
        return self._items.masks(np.ascontiguousarray(taken.T).astype(np.bool_))

    def words(self) -> NDArray[np.uint64]:
        """Return all decisions as the CPU keeps them: rows in their order, 64 cells a word."""
        if self._swept is None:
            return np.zeros(0, dtype=np.uint64)
        with on_device():
            return self._swept.queue.download(self._swept.bits).view(np.uint64)

    def _row(self, begin: int, end: int) -> NDArray[Any]:
        if self._swept is None:
            return np.zeros(end - begin, dtype=np.int64)
        buffer = int(self._swept.tables.buffer[0])
        with on_device():
            return self._swept.queue.download(self._swept.cells[buffer, begin:end])

    def _cell(self, capacity: int) -> int:
        if not 0 <= capacity <= self.capacity:
            raise ValueError(f"capacity {capacity} is not between 0 and {self.capacity}")
        return min(capacity // self.step, self._items.capacity)


def solve_all(
    sizes: Int64,
    gains: Int64,
    capacity: int,
    *,
    unit: int = 1,
    memory_limit_bytes: int | None = None,
    tiling: Tiling | None = None,
    cancel: CancelFlag | None = None,
    progress: Int64 | None = None,
) -> DeviceCurve:
    """Solve for every capacity from 0 to ``capacity`` at once, as ``dense.solve_all`` does.

    The memory limit is what the device has free where none is given; ``tiling`` is for
    measurements.

    Raises as ``dense.solve_all`` does, ``ArenaLimitError`` also where the device turns out to have
    too little memory; and ``NoDeviceError`` and ``DeviceFaultError``.
    """
    watched = watch(cancel, progress)
    items = reduced(sizes, gains, capacity, unit)
    watched.progress[1] = items.size.size
    kind = cell_type(total(items.gain))
    with on_device():
        limit = free_bytes() if memory_limit_bytes is None else memory_limit_bytes
    if limit is not None and need_for_all(items).size_bytes > limit:
        raise refusal(sizes, gains, capacity, items, need_for_all, limit)
    swept = None
    if items.size.size:
        try:
            with on_device():
                tables = tabled([for_all(items, kind)], kind, tiling or tiling_for(kind))
                swept = sweep(tables, watched)
        except MemoryError as error:
            raise _out_of_memory(sizes, gains, capacity, items) from error
    curve = DeviceCurve(items, capacity, swept)
    if curve.gain(capacity) > MAX_INT64:
        raise OverflowError(BEYOND_INT64)
    return curve


def solve_one(
    sizes: Int64,
    gains: Int64,
    capacity: int,
    *,
    unit: int = 1,
    memory_limit_bytes: int | None = None,
    tiling: Tiling | None = None,
    cancel: CancelFlag | None = None,
    progress: Int64 | None = None,
) -> Chosen:
    """Choose the subset that ``solve_all`` traces for ``capacity``, in less time and memory.

    ``dense.solve_one`` reaches the same gain, if not always by the same subset.
    """
    return solve_batch(
        [Candidates(sizes, gains, capacity)],
        unit=unit,
        memory_limit_bytes=memory_limit_bytes,
        tiling=tiling,
        cancel=cancel,
        progress=progress,
    )[0]


def _out_of_memory(sizes: Int64, gains: Int64, capacity: int, items: Items) -> ArenaLimitError:
    """Return the refusal for a device that had less memory than it said."""
    most = need_for_all(items).size_bytes - 1
    free = free_bytes()
    return refusal(
        sizes, gains, capacity, items, need_for_all, most if free is None else min(free, most)
    )
