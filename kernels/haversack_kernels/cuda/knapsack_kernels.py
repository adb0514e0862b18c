"""The dense knapsack DP as CUDA kernels: many rows side by side, bit for bit those of the CPU.

best[c] is the largest gain of a subset whose sizes sum to at most c, as in ``dense_sweep``. Threads
run in no order, so a row is read from one buffer and written to another; step ``s`` of every
problem reads ``cells[s & 1]``. Two kernels share the work, each over one group of candidates:

``sweep_one``    one candidate. Every cell is read from global memory twice and written once.
``SWEEP_GROUP``  several. A block keeps a tile of the row, and below it a *halo* as long as their
                 sizes together, in shared memory. Each candidate spoils as much of the halo as its
                 size, and only the tile is written: a cell is read and written once per group.

A thread of ``SWEEP_GROUP`` owns 32 consecutive cells, so it builds a word of decisions alone; cell
``j`` of a tile lies at ``j + j // 32``, so the 32 lanes of a warp never meet in a bank.

The bits are those of ``dense_rows``, each of its words as two of 32 bits. Knows nothing of how
candidates are grouped (``tiling``) or of memory.
"""

from typing import Any

import numpy as np
from numba import int32, int64, uint8, uint32
from numba.np.numpy_support import from_dtype

from haversack_kernels.cuda.compiled import cuda, kernel, part, simulated

WORD = 32
"""Cells that one thread owns, and bits of a word."""

PITCH = WORD + 1
"""Places in shared memory that a thread's cells take: odd, so that lanes use different banks."""

STAGE = 8
"""Cells that a thread of ``sweep_one`` loads before it stores the first: loads wait together."""

THREADS_OF_ONE = 32 if simulated() else 128
"""Threads of a block of ``sweep_one``: constant, so that distances are part of addresses."""

SIZE, LOW, HIGH, PLACE, HIGHEST = range(5)
"""Columns of ``rows``: first and last word of 32 bits, where word 0 would be, and last cell."""

BEGIN, END, HALO, FIRST, FILLED, TOP, START = range(7)
"""Columns of ``groups``, per step and problem: candidates ``BEGIN`` to ``END`` improve cells
``FIRST`` to ``TOP`` of the row at ``START``. Cells from ``FILLED`` on hold what all candidates
before gain together and were never written. A ``HALO`` of ``ONE`` asks for ``sweep_one``, and one
of 0 says that a tile holds the whole row."""

ONE = -1

FAR = 1 << 20
"""A distance beyond every tile."""


@part
def _near(distance: Any) -> Any:
    """Return a distance from a thread's first cell, cut to 32 bits.

    Not by min and max: numba's own CUDA target cannot compile these without a device.
    """
    return np.int32(-FAR if distance < -FAR else FAR if distance > FAR else distance)


@part
def _word_of(columns: Any, thread: Any) -> Any:
    """Return the word of decisions that a thread of ``sweep_one`` writes, from all their columns.

    Bit k of a column is cell k * THREADS_OF_ONE + thread; a word holds one bit of 32 columns.
    Lanes start at different columns, for the banks' sake.
    """
    bit, lane = np.uint32(thread * WORD // THREADS_OF_ONE), thread * WORD % THREADS_OF_ONE
    word = np.uint32(0)
    for k in range(WORD):
        turn = (thread + k) & (WORD - 1)
        taken = np.uint32(columns[lane + turn] >> bit) & np.uint32(1)
        word = np.uint32(word | np.uint32(np.uint32(taken) << np.uint32(turn)))
    return word


@kernel()
def sweep_one(
    cells: Any,
    bits: Any,
    rows: Any,
    gains: Any,
    before: Any,
    groups: Any,
    step: int,
    least: Any,
    overflows: Any,
) -> None:
    """Improve rows by one candidate each and set ``overflows``; grid ``(blocks, problems)``."""
    columns = cuda.shared.array(THREADS_OF_ONE, uint32)
    here, there = cuda.local.array(STAGE, gains.dtype), cuda.local.array(STAGE, gains.dtype)
    cell = gains.dtype.type
    thread, problem = cuda.threadIdx.x, cuda.blockIdx.y
    i, end = groups[step, problem, BEGIN], groups[step, problem, END]
    if i == end or groups[step, problem, HALO] != ONE:
        return
    first, top = groups[step, problem, FIRST], groups[step, problem, TOP]
    base = first + np.int64(cuda.blockIdx.x) * (THREADS_OF_ONE * WORD)
    if base >= top:
        return
    filled, source = groups[step, problem, FILLED], step & 1
    start, size, gain, fresh = groups[step, problem, START], rows[i, SIZE], gains[i], before[i]
    if thread == 0 and base == first:
        # Rows never fall, so the highest cell shows the first overflow.
        behind = rows[i, HIGHEST] - size
        best = cells[source, start + behind] if behind < filled else fresh
        if best > -(least + cell(1)) - gain:
            overflows[problem] = 1
    own, column = base + thread, np.uint32(0)
    here_known, there_known = _near(filled - own), _near(filled + size - own)
    lowest, beyond = _near(size - own), _near(top - own)
    at, behind = start + own, start + own - size
    for stage in range(0, WORD, STAGE):
        for k in range(STAGE):
            away = (stage + k) * THREADS_OF_ONE
            here[k] = cells[source, np.uint64(at + away)] if away < here_known else fresh
            there[k] = least
            if lowest <= away < beyond:
                there[k] = fresh
                if away < there_known:
                    there[k] = cells[source, np.uint64(behind + away)]
        for k in range(STAGE):
            away = (stage + k) * THREADS_OF_ONE
            moved = cell(there[k] + gain)
            if moved > here[k]:
                column = np.uint32(column | np.uint32(np.uint32(1) << np.uint32(stage + k)))
                here[k] = moved
            if away < beyond:
                cells[1 - source, np.uint64(at + away)] = here[k]
    columns[thread] = column
    cuda.syncthreads()
    word = _word_of(columns, thread)
    place = base // WORD + thread
    if rows[i, LOW] <= place <= rows[i, HIGH]:
        bits[rows[i, PLACE] + place] = word


@part
def _load(
    shared: Any,
    cells: Any,
    source: Any,
    start: Any,
    origin: Any,
    filled: Any,
    fresh: Any,
    least: Any,
) -> None:
    """Fill a tile with the cells from ``origin`` on of the row at ``start``, ``least`` below 0."""
    thread, threads = cuda.threadIdx.x, cuda.blockDim.x
    if thread < WORD:
        shared[thread] = least
    for k in range(WORD):
        j = k * threads + thread
        c = origin + j
        value = least
        if c >= 0:
            value = cells[source, start + c] if c < filled else fresh
        shared[np.uint32(PITCH + j + j // WORD)] = value


@part
def _improved(shared: Any, mine: Any, thread: Any, size: Any, gain: Any) -> Any:
    """Improve a thread's own cells by one candidate; return the word of decisions."""
    word, cell = np.uint32(0), shared.dtype.type
    behind, shift = np.int32(size // WORD), np.int32(size % WORD)
    at = np.int32(PITCH * (thread + 1 - behind) - shift)
    for k in range(WORD):
        # The cell k - shift is one place lower if it belongs to the thread before.
        lower = np.int32(np.int32(np.int32(k) - shift) >> np.int32(WORD - 1))
        moved = cell(shared[np.uint64(np.int32(at + lower)) + np.uint64(k)] + gain)
        if moved > mine[k]:
            mine[k] = moved
            word = np.uint32(word | np.uint32(1 << k))
    return word


def _sweep_group(
    cells: Any,
    bits: Any,
    rows: Any,
    gains: Any,
    before: Any,
    groups: Any,
    step: int,
    least: Any,
) -> None:
    """Improve a row by a group of candidates whose sizes sum to at most its halo.

    Grid ``(tiles, problems)``; shared memory for ``PITCH * (threads + 1)`` cells. Gains sum up to
    less than ``-least``, so cells below zero, which hold ``least``, improve none.
    """
    shared = cuda.shared.array(0, gains.dtype)
    mine = cuda.local.array(WORD, gains.dtype)
    thread, threads, problem = cuda.threadIdx.x, cuda.blockDim.x, cuda.blockIdx.y
    begin, end = groups[step, problem, BEGIN], groups[step, problem, END]
    halo, top = groups[step, problem, HALO], groups[step, problem, TOP]
    if begin == end or halo == ONE:
        return
    tile = threads * WORD - halo
    base = groups[step, problem, FIRST] + np.int64(cuda.blockIdx.x) * tile
    if base >= top:
        return
    origin, start, source = base - halo, groups[step, problem, START], step & 1
    filled, fresh = groups[step, problem, FILLED], before[begin]
    _load(shared, cells, source, start, origin, filled, fresh, least)
    cuda.syncthreads()
    own = np.uint32(PITCH * (thread + 1))
    for k in range(WORD):
        mine[k] = shared[own + np.uint32(k)]
    place, last = origin // WORD + thread, WORD * thread + WORD - 1
    spoilt = np.int64(0)
    size, gain = rows[begin, SIZE], gains[begin]
    for i in range(begin, end):
        if halo > 0:
            spoilt += size
        word = np.uint32(0)
        if last >= size and last >= spoilt:
            word = _improved(shared, mine, thread, size, gain)
        if i + 1 < end:
            size, gain = rows[i + 1, SIZE], gains[i + 1]
        cuda.syncthreads()  # all have read
        if word != 0:
            for k in range(WORD):
                shared[own + np.uint32(k)] = mine[k]
        if last >= halo and rows[i, LOW] <= place <= rows[i, HIGH]:
            bits[rows[i, PLACE] + place] = word
        cuda.syncthreads()  # all have written
    for k in range(WORD):
        j = k * threads + thread
        c = origin + j
        if j >= halo and c < top:
            cells[1 - source, start + c] = shared[np.uint32(PITCH + j + j // WORD)]


SWEEP_GROUP = {
    # What each thread may use so that a block is as large as ``tiling`` lets it be.
    np.dtype(np.int32): kernel(max_registers=64)(_sweep_group),
    np.dtype(np.int64): kernel(max_registers=80)(_sweep_group),
    np.dtype(np.float64): kernel(max_registers=80)(_sweep_group),
}
"""One kernel per type of cell."""


@kernel()
def trace(bits: Any, rows: Any, spans: Any, owner: Any, left: Any, taken: Any) -> None:
    """Write to ``taken[i, k]`` whether candidate ``i`` of its problem is taken in answer ``k``.

    Answer ``k`` is for problem ``owner[k]``, whose candidates are ``spans[owner[k]]``, and starts
    with ``left[k]`` cells. One thread walks one answer, in ``dense_trace``'s order.
    """
    k = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
    if k >= left.size:
        return
    begin, end, room = spans[owner[k], 0], spans[owner[k], 1], left[k]
    for i in range(end - 1, begin - 1, -1):
        word = room // WORD
        takes = np.uint32(1) if word > rows[i, HIGH] else np.uint32(0)
        if rows[i, LOW] <= word <= rows[i, HIGH]:
            takes = np.uint32(bits[rows[i, PLACE] + word] >> np.uint32(room % WORD)) & np.uint32(1)
        taken[i - begin, k] = np.uint8(takes)
        if takes != 0:
            room -= rows[i, SIZE]


def signature(cell: np.dtype[Any]) -> dict[str, tuple[Any, ...]]:
    """Return what each kernel takes for rows of this type of cell."""
    number = from_dtype(cell)
    table = int64[:, ::1]
    sweep = (
        number[:, ::1],
        uint32[::1],
        table,
        number[::1],
        number[::1],
        int64[:, :, ::1],
        int64,
        number,
    )
    return {
        "sweep_one": (*sweep, int32[::1]),
        "sweep_group": sweep,
        "trace": (uint32[::1], table, table, int64[::1], int64[::1], uint8[:, ::1]),
    }
