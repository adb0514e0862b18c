"""What the dense DP makes of its candidates before it sweeps: fewer and smaller numbers.

Exact for every capacity up to the one asked for: what gains nothing or cannot fit is left out, what
has no size is free, the sizes' common divisor becomes the size of a cell, and equal candidates are
cut into *chunks* of 1, 2, 4, ... copies. In a unit above 1, sizes are rounded up and the capacity
down, so that what fits in cells fits in bytes. Knows nothing of rows or bits.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import MAX_INT64, Int64, integer, jit, natural, total


class Items(NamedTuple):
    """Hold chunks of equal candidates, smallest first, and what they are made of.

    ``step`` is the size of a cell. ``capacity`` counts cells, and holds all chunks at most. Chunk
    ``i`` is ``copies[i]`` of run ``run[i]``; run ``r`` is ``members[start[r]:start[r + 1]]``.
    ``free`` has shape ``(n,)``: what is always saved, for ``free_gain``.
    """

    size: Int64
    gain: Int64
    copies: Int64
    run: Int64
    start: Int64
    members: Int64
    free: NDArray[np.bool_]
    free_gain: int
    capacity: int
    step: int

    def masks(self, taken: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which candidates are saved: of equal ones the earliest, as many as are taken.

        ``taken`` has shape ``(answers, chunks)``, the masks ``(answers, n)``.
        """
        masks = np.empty((taken.shape[0], self.free.size), dtype=np.bool_)
        _spread(taken, self.copies, self.run, self.start, self.members, self.free, masks)
        return masks


def reduced(sizes: Int64, gains: Int64, capacity: int, unit: int) -> Items:
    """Check the candidates and reduce them; raise if an optimum surely exceeds 2^63-1.

    ``sizes`` and ``gains`` have shape ``(n,)``, both >= 0; ``unit`` is the size of a cell, or a
    divisor of it.
    """
    sizes, gains = natural("sizes", sizes), natural("gains", gains)
    capacity, unit = integer("capacity", capacity), integer("unit", unit)
    _check(sizes, gains, capacity, unit)
    cells = -(-sizes // unit)
    useful = (gains > 0) & (cells <= min(capacity // unit, MAX_INT64))
    free, wanted = useful & (cells == 0), np.flatnonzero(useful & (cells > 0))
    divisor = max(int(np.gcd.reduce(cells[wanted])), 1)
    room = min(capacity // unit // divisor, MAX_INT64)
    order = wanted[np.lexsort((gains[wanted], cells[wanted]))]
    size, gain = cells[order] // divisor, gains[order]
    start = np.flatnonzero(np.diff(size, prepend=-1) | np.diff(gain, prepend=-1))
    most = np.diff(start, append=order.size)
    run, copies = _cut(np.minimum(most, room // size[start]))
    size, gain = size[start][run] * copies, _times(gain[start][run], copies)
    smallest = np.argsort(size, kind="stable")
    return Items(
        size=size[smallest],
        gain=gain[smallest],
        copies=copies[smallest],
        run=run[smallest],
        start=np.append(start, order.size),
        members=order,
        free=free,
        free_gain=total(gains[free]),
        capacity=min(room, total(size)),
        step=unit * divisor,
    )


def _check(sizes: Int64, gains: Int64, capacity: int, unit: int) -> None:
    if sizes.shape != gains.shape:
        raise ValueError(f"{sizes.size} sizes but {gains.size} gains: give one gain for each size")
    if capacity < 0:
        raise ValueError(f"capacity {capacity} is negative")
    if not 1 <= unit <= MAX_INT64:
        raise ValueError(f"unit {unit} is not between 1 and 2^63-1")


def _cut(copies: Int64) -> tuple[Int64, Int64]:
    """Return the run and copies of every chunk: 1, 2, 4, ... and a rest, enough for any number."""
    left, power = copies.copy(), 1
    runs, chunks = [], []
    while left.any():
        run = np.flatnonzero(left)
        chunk = np.minimum(left[run], power)
        left[run] -= chunk
        runs.append(run)
        chunks.append(chunk)
        power *= 2
    if not runs:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.concatenate(runs), np.concatenate(chunks)


def _times(gain: Int64, copies: Int64) -> Int64:
    """Multiply; copies of a chunk fit together, so a product above 2^63-1 is below an optimum."""
    if (gain > MAX_INT64 // copies).any():
        raise OverflowError("the optimum is above 2^63-1: scale the gains down")
    return gain * copies


@jit
def _spread(
    taken: NDArray[np.bool_],
    copies: Int64,
    run: Int64,
    start: Int64,
    members: Int64,
    free: NDArray[np.bool_],
    masks: NDArray[np.bool_],
) -> None:
    """Save the first members of each run; no branch hangs on a decision, which none foresees.

    What is in no run is in one of which nothing is saved; what is free comes before its first.
    """
    runs = start.size - 1
    saved, run_of = np.zeros(runs + 1, np.int64), np.full(free.size, runs)
    place = -1 * free
    for r in range(runs):
        for m in range(start[r], start[r + 1]):
            run_of[members[m]], place[members[m]] = r, m - start[r]
    for k in range(taken.shape[0]):
        saved[:] = 0
        for i in range(copies.size):
            saved[run[i]] += copies[i] * taken[k, i]
        for candidate in range(free.size):
            masks[k, candidate] = place[candidate] < saved[run_of[candidate]]
