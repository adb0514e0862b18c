"""How much of a device's memory a solve takes; loads nothing, so that dispatch can ask cheaply."""

from typing import Any

import numpy as np

BLOCK = 64
"""Cells that a row is made of at least, as on the CPU."""

TABLE_BYTES = 256
"""Per candidate, for the tables that say what a kernel has to do."""


def memory_needed(n: int, cells: int, dtype: Any) -> int:
    """Return the most bytes that ``n`` candidates in ``cells`` cells of ``dtype`` take.

    Two rows, a bit per candidate and cell, and the tables. Reductions and windows may spare some.
    """
    blocks = -(-cells // BLOCK)
    cell_bytes = int(np.dtype(dtype).itemsize)
    return 2 * blocks * BLOCK * cell_bytes + n * (blocks * 8 + TABLE_BYTES)
