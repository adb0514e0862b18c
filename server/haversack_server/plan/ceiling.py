"""Rung 2: one option for each block of a chain, under the ceilings of its timeline.

Turns a chain into the columns of ``haversack_kernels.ceiling`` and back. Rounds nothing: bytes are
exact. What an option needs at the moments of its block, states and buffers included, is its peak
here, so the kernel's own bases are 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from haversack_server.memory.chain import Chain, ChainBlock
from haversack_server.memory.timeline import bases
from haversack_server.plan.solving import Cancel, Solving

if TYPE_CHECKING:
    from haversack_kernels.ceiling import Choice
    from haversack_kernels.dispatch import Explanation

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """A chain as columns: options of block j at ``offsets[j]:offsets[j + 1]``, bases per block.

    ``fixed_bytes`` is the highest moment that no option moves.
    """

    offsets: Int64
    retained: Int64
    forward_peak: Int64
    backward_peak: Int64
    extra: Int64
    forward_base: Int64
    backward_base: Int64
    fixed_bytes: int


@dataclass(frozen=True, slots=True)
class Floor:
    """The least peak over all plans, and one option per block that reaches it."""

    peak_bytes: int
    choice: tuple[int, ...]


def tables(chain: Chain) -> Tables:
    """Write a chain as columns."""
    base = bases(chain)
    counts = [len(block.options) for block in chain.blocks]
    nothing = np.zeros(len(chain.blocks), dtype=np.int64)
    return Tables(
        offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        retained=_column(chain.blocks, "retained_bytes"),
        forward_peak=_joined(base.forward),
        backward_peak=_joined(base.backward),
        extra=_column(chain.blocks, "extra_ns"),
        forward_base=nothing,
        backward_base=nothing,
        fixed_bytes=base.fixed,
    )


def _joined(needs: Sequence[Sequence[int]]) -> Int64:
    return np.array([need for block in needs for need in block], dtype=np.int64)


def _column(blocks: Sequence[ChainBlock], name: str) -> Int64:
    values = [getattr(option, name) for block in blocks for option in block.options]
    return np.array(values, dtype=np.int64)


def floor(table: Tables, cancel: Cancel = None) -> Floor:
    """Find the least peak that any plan reaches."""
    from haversack_kernels import ceiling

    found = ceiling.floor(
        table.offsets,
        table.retained,
        table.forward_peak,
        table.backward_peak,
        table.forward_base,
        table.backward_base,
        cancel=cancel,
    )
    return Floor(max(found.peak, table.fixed_bytes), local(table, found.options))


def peak(table: Tables, options: Sequence[int]) -> int:
    """Give the highest moment of a plan, by the index of each block's own option."""
    from haversack_kernels import ceiling

    found = ceiling.evaluate(
        table.offsets,
        table.retained,
        table.forward_peak,
        table.backward_peak,
        table.forward_base,
        table.backward_base,
        np.array(options, dtype=np.int64) + table.offsets[:-1],
    )
    return max(found.peak, table.fixed_bytes)


def solve(
    table: Tables, budget_bytes: int, *, state_limit: int, solving: Solving
) -> "tuple[Choice, Explanation]":
    """Choose the options of least extra time whose peak is within ``budget_bytes``; say how.

    The fixed moments must be within it too; the caller has compared the floor.
    """
    from haversack_kernels import dispatch

    return dispatch.solve_ceiling(
        table.offsets,
        table.retained,
        table.forward_peak,
        table.backward_peak,
        table.extra,
        budget_bytes - table.forward_base,
        budget_bytes - table.backward_base,
        state_limit=state_limit,
        **solving.keywords(),
    )


def frontier(
    table: Tables, budgets: Sequence[int], *, state_limit: int, cancel: Cancel = None
) -> "tuple[Choice, ...]":
    """Choose the options of least extra time for every budget, all in one sweep if it can be."""
    from haversack_kernels import ceiling

    return ceiling.frontier(
        table.offsets,
        table.retained,
        table.forward_peak,
        table.backward_peak,
        table.extra,
        table.forward_base,
        table.backward_base,
        budgets,
        state_limit=state_limit,
        cancel=cancel,
    )


def local(table: Tables, options: Int64) -> tuple[int, ...]:
    """Turn indices into the columns into indices into each block's own options."""
    return tuple((options - table.offsets[:-1]).tolist())
