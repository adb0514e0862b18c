"""Sends a batch of chains through the ceiling kernels, and walks their decisions back.

Rows and decisions stay on the device. Knows nothing of limits, bytes or budgets.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import Int64
from haversack_kernels.cuda import ceiling_kernels as kernels
from haversack_kernels.cuda.ceiling_tables import Slots, Tables
from haversack_kernels.cuda.launch import Queue
from haversack_kernels.dense_rows import Watch

TRACE_THREADS = 32
"""Answers walked back by one block: each waits for memory at every block, so spread them."""


class Swept(NamedTuple):
    """Hold what a sweep has on the device, and the queue to ask for it."""

    chains: list[Slots]
    tables: Tables
    queue: Queue
    cells: Any
    choices: Any
    options: Any
    extras: Any
    blocks: Any
    groups: Any
    spans: Any

    def row(self, p: int) -> NDArray[Any]:
        """Return the least extra per retained slot of chain ``p``, ``tables.never`` where none."""
        begin = int(self.tables.start[p])
        end = begin + self.chains[p].cells
        return self.queue.download(self.cells[int(self.tables.buffer[p]), begin:end])

    def decisions(self) -> NDArray[np.uint8]:
        """Return all decisions: block after block, a byte for each of its cells."""
        return self.queue.download(self.choices).view(np.uint8)


def sweep(chains: list[Slots], tables: Tables, watched: Watch) -> Swept:
    """Sweep all chains side by side."""
    swept = prepared(chains, tables, watched)
    run(swept)
    return swept


def prepared(chains: list[Slots], tables: Tables, watched: Watch) -> Swept:
    """Return the tables on the device, and memory for rows and decisions."""
    queue = Queue(watched)
    options, extras, blocks, groups, spans = queue.upload_together(
        tables.options, tables.extras, tables.blocks, tables.groups, tables.spans
    )
    return Swept(
        chains=chains,
        tables=tables,
        queue=queue,
        cells=queue.new((2, tables.cells), tables.dtype),
        choices=queue.new(tables.choices, np.uint8),
        options=options,
        extras=extras,
        blocks=blocks,
        groups=groups,
        spans=spans,
    )


def run(swept: Swept) -> None:
    """Send all steps and wait for them; may be repeated."""
    tables, queue, problems = swept.tables, swept.queue, len(swept.chains)
    cell = np.dtype(tables.dtype)
    taken, never = kernels.signature(cell), tables.never
    on_device = (
        swept.cells,
        swept.choices,
        swept.options,
        swept.extras,
        swept.blocks,
        swept.groups,
    )
    for number, step in enumerate(tables.steps):
        given = (*on_device, number, never)
        grid = (step.one_blocks, problems)
        queue.launch(kernels.extend_one, taken["extend_one"], grid, kernels.THREADS, *given)
        queue.launch(
            kernels.extend_group,
            taken["extend_group"],
            (step.tiles, problems),
            kernels.THREADS,
            *given,
            shared_bytes=kernels.TILE * cell.itemsize,
        )
        queue.done_with(step.rows, step.cells)
    queue.drain()


def traced(swept: Swept, owner: Int64, retained: Int64) -> NDArray[np.uint8]:
    """Return which of its own options every block takes in the plan that retains so many slots.

    The shape is ``(most blocks, answers)``; beyond a chain's own blocks it says nothing.
    """
    queue = swept.queue
    most = int(np.diff(swept.tables.spans, axis=1).max())
    taken = queue.new((most, retained.size), np.uint8)
    owners, cells = queue.upload_together(owner, retained)
    queue.launch(
        kernels.trace,
        kernels.signature(np.dtype(swept.tables.dtype))["trace"],
        (-(-retained.size // TRACE_THREADS), 1),
        TRACE_THREADS,
        swept.choices,
        swept.options,
        swept.blocks,
        swept.spans,
        owners,
        cells,
        taken,
    )
    return queue.download(taken)
