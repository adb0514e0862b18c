"""Reads decisions back, and joins the rows of two halves; the sweeps are in ``dense_sweep``."""

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import MAX_INT64, Int64, jit
from haversack_kernels.dense_sweep import BLOCK, MARGIN, Cells, Rows, UInt64


@jit
def trace(rows: Rows, kept_from: int, bits: UInt64, left: Int64, taken: NDArray[np.bool_]) -> None:
    """Write to ``taken[k, i]`` whether row ``i`` is taken at the best of capacity ``left[k]``.

    Goes back from the last row to ``kept_from`` and leaves in ``left`` what the earlier rows have.
    All capacities go back together: each waits for memory while the others are served.
    """
    for i in range(rows.size.size - 1, kept_from - 1, -1):
        first, last, size = rows.low[i] >> 6, rows.high[i] >> 6, rows.size[i]
        for k in range(left.size):
            word = left[k] >> 6
            takes = word > last  # beyond the reach: all candidates up to this one fit
            if first <= word <= last:
                takes = (bits[rows.place[i] + word] >> np.uint64(left[k] & 63)) & np.uint64(1) != 0
            taken[k, i] = takes
            left[k] -= size * takes


@jit
def join(front: Cells, back: Cells, capacity: int, first: int, last: int) -> tuple[int, bool]:
    """Return the least share of ``capacity`` in first..last with which two halves gain most.

    The front row is given the share, the back row the rest. Also tells whether the gain is above
    2^63-1. Rows never fall, so a block's ends bound what is in it, and most blocks are passed over.
    """
    share, best = -1, np.uint64(0)
    for c in range(first, last + 1, BLOCK):
        best = max(best, _joined(front, c, back, capacity - c))
    for begin in range(first, last + 1, BLOCK):
        end = min(begin + BLOCK, last + 1)
        if _joined(front, end - 1, back, capacity - begin) >= best:
            for c in range(begin, end):
                gain = _joined(front, c, back, capacity - c)
                if gain > best or (share < 0 and gain == best):
                    share, best = c, gain
    return share, bool(best > np.uint64(MAX_INT64))


@jit
def _joined(front: Cells, share: int, back: Cells, rest: int) -> np.uint64:
    return np.uint64(front[MARGIN + share]) + np.uint64(back[MARGIN + rest])
