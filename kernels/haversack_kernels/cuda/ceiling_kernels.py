"""The dense ceiling DP as CUDA kernels: one row per block of the chain, decisions as bytes.

least[u] is the least extra of all prefixes that retain exactly u, or ``never`` where there is none:

    after[u] = min over the block's options o of before[u - retained[o]] + extra[o]
               where 0 <= u - retained[o] <= ceiling[o]

and a byte per cell says which option that was: the lowest of equal ones, ``NO_OPTION`` if none.
Rows go from one buffer to another, and blocks of the chain are taken one by one (``extend_one``)
or fused (``extend_group``), as candidates are in ``knapsack_kernels``; the halo of a group is as
long as the most its blocks can retain. Here a thread's cells lie as far apart as there are threads,
for it builds no words.

Knows nothing of budgets, of how blocks are grouped (``tiling``) or of memory.
"""

from typing import Any

import numpy as np
from numba import int64, uint8
from numba.np.numpy_support import from_dtype

from haversack_kernels.cuda.compiled import cuda, kernel, part, simulated

SHARE = 16
"""Cells of a thread of ``extend_group``."""

SHARE_OF_ONE = 4
"""Cells of a thread of ``extend_one``: so many loads wait together."""

THREADS = 32 if simulated() else 512
"""Threads of a block: constant, so that the distance of a thread's cells is part of an address."""

TILE = SHARE * THREADS
"""Cells that a block of ``extend_group`` works on, its halo included."""

NO_OPTION = 255

RETAINED, CEILING = range(2)
"""Columns of ``options``; no ceiling is above the last cell that the block before has."""

FROM, UNTIL, WIDEST, PLACE, CELLS = range(5)
"""Columns of ``blocks``: options ``FROM`` to ``UNTIL``, of which the most retaining retains
``WIDEST``; decisions of cell ``u < CELLS`` go to ``PLACE + u``."""

BEGIN, END, HALO, FILLED, TOP, START = range(6)
"""Columns of ``groups``, per step and problem: blocks ``BEGIN`` to ``END`` make ``TOP`` cells of
the ``FILLED`` ones of the row at ``START``: none before the first block, where only 0 is retained.
A ``HALO`` of ``ONE`` asks for ``extend_one``."""

ONE = -1


@kernel()
def extend_one(
    cells: Any,
    choices: Any,
    options: Any,
    extras: Any,
    blocks: Any,
    groups: Any,
    step: int,
    never: Any,
) -> None:
    """Extend all prefixes by one block. Grid ``(parts of a row, problems)``."""
    best = cuda.local.array(SHARE_OF_ONE, extras.dtype)
    choice = cuda.local.array(SHARE_OF_ONE, uint8)
    cell = extras.dtype.type
    thread, problem = cuda.threadIdx.x, cuda.blockIdx.y
    b, end = groups[step, problem, BEGIN], groups[step, problem, END]
    if b == end or groups[step, problem, HALO] != ONE:
        return
    top, filled = groups[step, problem, TOP], groups[step, problem, FILLED]
    base = np.int64(cuda.blockIdx.x) * (THREADS * SHARE_OF_ONE) + thread
    start, source = groups[step, problem, START], step & 1
    for k in range(SHARE_OF_ONE):
        best[k] = never
        choice[k] = np.uint8(NO_OPTION)
    for o in range(blocks[b, FROM], blocks[b, UNTIL]):
        retained, ceiling, extra = options[o, RETAINED], options[o, CEILING], extras[o]
        for k in range(SHARE_OF_ONE):
            c = base + k * THREADS
            if c < top and 0 <= c - retained <= ceiling:
                prefix = cells[source, start + c - retained] if filled > 0 else cell(0)
                if prefix < cell(best[k] - extra):
                    best[k] = cell(prefix + extra)
                    choice[k] = np.uint8(o - blocks[b, FROM])
    for k in range(SHARE_OF_ONE):
        c = base + k * THREADS
        if c < top:
            cells[1 - source, start + c] = best[k]
            choices[blocks[b, PLACE] + c] = choice[k]


@part
def _try(
    shared: Any,
    best: Any,
    choice: Any,
    extra: Any,
    name: Any,
    most: Any,
    retained: Any,
    thread: Any,
    whole: Any,
) -> None:
    """Improve a thread's cells from share ``whole`` on by an option of the block in turn.

    ``most`` is the last cell of the tile that the option may follow.
    """
    cell = shared.dtype.type
    # Not by min: numba's own CUDA target cannot compile that without a device.
    last = np.int32(most if most < TILE else TILE)
    first = np.int32(thread - (retained if retained < TILE else TILE))
    for k in range(SHARE):
        prefix = np.int32(first + np.int32(k * THREADS))
        if k >= whole and prefix >= 0 and prefix <= last:
            less = shared[np.uint64(prefix)]
            if less < cell(best[k] - extra):
                best[k] = cell(less + extra)
                choice[k] = name


@part
def _load(
    shared: Any, cells: Any, source: Any, start: Any, origin: Any, filled: Any, never: Any
) -> None:
    """Fill a tile with the cells from ``origin`` on of the row at ``start``."""
    thread, cell = cuda.threadIdx.x, shared.dtype.type
    own = np.uint64(thread)
    for k in range(SHARE):
        c = origin + thread + k * THREADS
        value = cell(0) if c == 0 and filled == 0 else never
        if 0 <= c < filled:
            value = cells[source, np.uint64(start + c)]
        shared[own + np.uint64(k * THREADS)] = value


@kernel(max_registers=64)
def extend_group(
    cells: Any,
    choices: Any,
    options: Any,
    extras: Any,
    blocks: Any,
    groups: Any,
    step: int,
    never: Any,
) -> None:
    """Extend all prefixes by the blocks of a group, which retain at most its halo together.

    Grid ``(tiles, problems)``; shared memory for ``TILE`` cells.
    """
    shared = cuda.shared.array(0, extras.dtype)
    best = cuda.local.array(SHARE, extras.dtype)
    choice = cuda.local.array(SHARE, uint8)
    thread, problem = cuda.threadIdx.x, cuda.blockIdx.y
    begin, end = groups[step, problem, BEGIN], groups[step, problem, END]
    halo, top = groups[step, problem, HALO], groups[step, problem, TOP]
    if begin == end or halo == ONE:
        return
    origin = np.int64(cuda.blockIdx.x) * (TILE - halo) - halo
    if origin + halo >= top:
        return
    start, source, filled = groups[step, problem, START], step & 1, groups[step, problem, FILLED]
    own, spoilt = np.uint64(thread), np.int64(0)
    _load(shared, cells, source, start, origin, filled, never)
    cuda.syncthreads()
    for b in range(begin, end):
        if halo > 0:
            spoilt += blocks[b, WIDEST]
        whole = np.int32(spoilt // THREADS)  # of the cells spoilt, so many belong to every thread
        for k in range(SHARE):
            best[k] = never
            choice[k] = np.uint8(NO_OPTION)
        for o in range(blocks[b, FROM], blocks[b, UNTIL]):
            most, retained = options[o, CEILING] - origin, options[o, RETAINED]
            name = np.uint8(o - blocks[b, FROM])
            _try(shared, best, choice, extras[o], name, most, retained, thread, whole)
        cuda.syncthreads()  # all have read
        # Distances from the thread's first cell, so that no address outlives a block of the chain.
        low = np.int32(halo - thread)
        high = blocks[b, CELLS] - origin
        high = np.int32((high if high < TILE else TILE) - thread)
        at = blocks[b, PLACE] + origin + thread
        for k in range(SHARE):
            shared[own + np.uint64(k * THREADS)] = best[k]
            if low <= k * THREADS < high:
                choices[at + k * THREADS] = choice[k]
        cuda.syncthreads()  # all have written
    for k in range(SHARE):
        j = k * THREADS + thread
        if j >= halo and origin + j < top:
            cells[1 - source, np.uint64(start + origin + j)] = shared[own + np.uint64(k * THREADS)]


@kernel()
def trace(
    choices: Any, options: Any, blocks: Any, spans: Any, owner: Any, cells: Any, taken: Any
) -> None:
    """Write to ``taken[j, k]`` which option of its own block ``j`` of answer ``k``'s chain takes.

    Answer ``k`` is for problem ``owner[k]``, whose blocks are ``spans[owner[k]]``, and retains
    ``cells[k]``, which some plan does. One thread walks one answer, from the last block.
    """
    k = np.int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
    if k >= cells.size:
        return
    begin, end, retained = spans[owner[k], 0], spans[owner[k], 1], cells[k]
    for b in range(end - 1, begin - 1, -1):
        option = choices[blocks[b, PLACE] + retained]
        taken[b - begin, k] = option
        retained -= options[blocks[b, FROM] + option, RETAINED]


def signature(cell: np.dtype[Any]) -> dict[str, tuple[Any, ...]]:
    """Return what each kernel takes for rows of this type of cell."""
    number = from_dtype(cell)
    table = int64[:, ::1]
    extend = (
        number[:, ::1],
        uint8[::1],
        table,
        number[::1],
        table,
        int64[:, :, ::1],
        int64,
        number,
    )
    walk = (uint8[::1], table, table, table, int64[::1], int64[::1], uint8[:, ::1])
    return {"extend_one": extend, "extend_group": extend, "trace": walk}
