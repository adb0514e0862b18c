"""Sends a batch of knapsack problems through the kernels, and walks their decisions back.

Rows and decisions stay on the device. Knows nothing of limits or of what candidates are made of.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import Int64
from haversack_kernels.cuda import knapsack_kernels as kernels
from haversack_kernels.cuda.compiled import cuda, simulated
from haversack_kernels.cuda.knapsack_tables import Tables
from haversack_kernels.cuda.launch import Queue
from haversack_kernels.cuda.tiling import Tiling, most_threads
from haversack_kernels.dense_rows import BEYOND_INT64, CellType, Watch

TRACE_THREADS = 32
"""Answers walked back by one block: each waits for memory at every candidate, so spread them."""


class Swept(NamedTuple):
    """Hold what a sweep has on the device, and the queue to ask for it."""

    tables: Tables
    queue: Queue
    cells: Any
    bits: Any
    rows: Any
    gains: Any
    before: Any
    groups: Any
    spans: Any
    overflows: Any


def tiling_for(kind: CellType) -> Tiling:
    """Return the largest tiles that the device's blocks can hold; small ones in the simulator."""
    if simulated():
        return Tiling(most_threads=32, multiprocessors=1)
    device = cuda.get_current_device()
    return Tiling(
        most_threads=most_threads(
            np.dtype(kind.dtype).itemsize, device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        ),
        multiprocessors=device.MULTIPROCESSOR_COUNT,
    )


def sweep(tables: Tables, watched: Watch) -> Swept:
    """Sweep all problems of ``tables``, which have at least one candidate each.

    Raises ``OverflowError`` if a cell would exceed what its type can hold.
    """
    swept = prepared(tables, watched)
    run(swept)
    if tables.kind.may_overflow and swept.queue.download(swept.overflows).any():
        raise OverflowError(BEYOND_INT64)
    return swept


def prepared(tables: Tables, watched: Watch) -> Swept:
    """Return the tables on the device, and memory for rows and decisions."""
    queue, cell = Queue(watched), np.dtype(tables.kind.dtype)
    rows, gains, before, groups, spans = queue.upload_together(
        tables.rows, tables.gains, tables.before, tables.groups, tables.spans
    )
    return Swept(
        tables=tables,
        queue=queue,
        cells=queue.new((2, tables.cells), cell),
        bits=queue.new(2 * tables.words, np.uint32),
        rows=rows,
        gains=gains,
        before=before,
        groups=groups,
        spans=spans,
        overflows=queue.upload(np.zeros(tables.spans.shape[0], dtype=np.int32)),
    )


def run(swept: Swept) -> None:
    """Send all steps and wait for them; may be repeated."""
    tables, queue = swept.tables, swept.queue
    cell, problems = np.dtype(tables.kind.dtype), tables.spans.shape[0]
    taken, least, shared_bytes = kernels.signature(cell), tables.least, tables.shared_bytes
    on_device = swept.cells, swept.bits, swept.rows, swept.gains, swept.before, swept.groups
    for number, step in enumerate(tables.steps):
        queue.launch(
            kernels.sweep_one,
            taken["sweep_one"],
            (step.one_blocks, problems),
            kernels.THREADS_OF_ONE,
            *on_device,
            number,
            least,
            swept.overflows,
        )
        queue.launch(
            kernels.SWEEP_GROUP[cell],
            taken["sweep_group"],
            (step.tiles, problems),
            tables.threads,
            *on_device,
            number,
            least,
            shared_bytes=shared_bytes,
        )
        queue.done_with(step.rows, step.cells)
    queue.drain()


def traced(swept: Swept, owner: Int64, left: Int64) -> NDArray[np.uint8]:
    """Return 1 where candidate ``i`` of problem ``owner[k]`` is taken at the best of ``left[k]``.

    The shape is ``(most candidates, answers)``; beyond a problem's own candidates it says nothing.
    """
    queue = swept.queue
    most = int(np.diff(swept.tables.spans, axis=1).max())
    taken = queue.new((most, left.size), np.uint8)
    owners, rooms = queue.upload_together(owner, left)
    queue.launch(
        kernels.trace,
        kernels.signature(np.dtype(swept.tables.kind.dtype))["trace"],
        (-(-left.size // TRACE_THREADS), 1),
        TRACE_THREADS,
        swept.bits,
        swept.rows,
        swept.spans,
        owners,
        rooms,
        taken,
    )
    return queue.download(taken)
