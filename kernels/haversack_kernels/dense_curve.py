"""The answers of one dense sweep, for every capacity; ``haversack_kernels.dense`` makes them."""

import weakref
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import Int64, integer
from haversack_kernels.arena import Lease
from haversack_kernels.dense_items import Items
from haversack_kernels.dense_sweep import MARGIN, Cells, Rows, UInt64
from haversack_kernels.dense_trace import trace


class Curve:
    """Answers for every capacity up to the one solved for; holds memory until it is dropped.

    In a unit above 1 an answer is the best of those whose sizes, rounded up, fit.
    """

    def __init__(
        self, items: Items, capacity: int, row: Cells, rows: Rows, bits: UInt64, lease: Lease
    ) -> None:
        self._items, self._row, self._rows, self._bits = items, row, rows, bits
        self.capacity = capacity
        weakref.finalize(self, lease.give_back)

    @property
    def step(self) -> int:
        """Return how many units of size apart two capacities are whose answers can differ."""
        return self._items.step

    @cached_property
    def gains(self) -> Int64:
        """Return the best gain within ``k * step`` for each ``k``, until all or the capacity fits.

        Never falls. What is never reached because everything fits before is left out. Made on
        first use, in 8 bytes a cell beside the memory held.
        """
        cells = self._row[MARGIN : MARGIN + self._items.capacity + 1]
        return cells.astype(np.int64) + self._items.free_gain

    def gain(self, capacity: int) -> int:
        """Return the best gain within ``capacity``."""
        return int(self._row[MARGIN + self._cell(capacity)]) + self._items.free_gain

    def trace(self, capacity: int) -> NDArray[np.bool_]:
        """Return a subset of that gain within ``capacity`` as a mask of shape ``(n,)``."""
        mask: NDArray[np.bool_] = self.traces([capacity])[0]
        return mask

    def traces(self, capacities: Sequence[int]) -> NDArray[np.bool_]:
        """Return a mask per capacity, of shape ``(capacities, n)``, in much less time than singly.

        Of equal candidates the earlier are saved.
        """
        left = np.array([self._cell(capacity) for capacity in capacities], dtype=np.int64)
        taken = np.empty((left.size, self._rows.size.size), dtype=np.bool_)
        trace(self._rows, 0, self._bits, left, taken)
        return self._items.masks(taken)

    def _cell(self, capacity: int) -> int:
        if not 0 <= integer("capacity", capacity) <= self.capacity:
            raise ValueError(f"capacity {capacity} is not between 0 and {self.capacity}")
        return min(capacity // self.step, self._items.capacity)
