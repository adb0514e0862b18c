"""The dense DP beside ``haversack_kernels.ceiling``, in slots of bytes: for one budget, or for all.

For one, forward: least[u] is the least extra of the blocks so far that retain u slots, and
    least[u] = min over options allowed after u - retained of   extra + least[u - retained]
For all, from the last block back: least[s] is the least extra of the blocks from one on if the
slack, the budget less what is retained before, is s slots, and
    least[s] = min over options that need at most s of   extra + least[s - retained]

Sizes are rounded up to slots, ceilings and budgets down, so every plan found is allowed; in slots
of one byte it is one of least extra. Time: a cell per option and slot, whatever the extras
(``haversack_kernels.slots_sweep``). Memory: a bit for each, and two rows. Knows no lower bound.
"""

import weakref
from typing import Any, NamedTuple

import numpy as np

from haversack_kernels._jit import CancelFlag, Int64, flag, integer, natural
from haversack_kernels.arena import LINE, ArenaLimitError, Lease, aligned
from haversack_kernels.columns import MAX_BYTES, Columns, checked, sum_of_largest
from haversack_kernels.errors import SolveCancelled
from haversack_kernels.slots_sweep import BLOCK, CANCELLED, Bits, Cells, Chain, reach, sweep, trace
from haversack_kernels.sweep import Table

DEFAULT_SLOTS = 1 << 16
DEFAULT_ARENA_LIMIT_BYTES = 256 << 20

LEAST_SLOTS = 2
"""What one budget takes in however coarse a unit: what the last block retains is rounded up."""

NEVER = {np.int32: 2**30, np.int64: 2**62}
"""More than any plan's extra, and at most half of what a cell holds."""

MOST_EXTRA = NEVER[np.int64]
"""What the largest extras of the blocks have to sum to less than."""


class Scale(NamedTuple):
    """Say how sizes become slots: ``(size - base) / unit``, of which there are ``slots``."""

    base: int
    unit: int
    slots: int


class Curve:
    """Answers for every budget up to the one solved for; holds memory until it is dropped."""

    def __init__(self, scale: Scale, chain: Chain, least: Cells, bits: Bits, lease: Lease) -> None:
        self._scale, self._chain, self._least, self._bits = scale, chain, least, bits
        weakref.finalize(self, lease.give_back)

    @property
    def unit(self) -> int:
        """Return the bytes of a slot."""
        return self._scale.unit

    def extra(self, budget: int) -> int | None:
        """Return the extra of the plan for this budget, or None if none was found."""
        slot = self._slot(budget)
        if slot < 0 or self._least[slot] == NEVER[self._least.dtype.type]:
            return None
        return int(self._least[slot])

    def options(self, budget: int) -> Int64:
        """Return the rows of that plan, of shape ``(blocks,)``, or -1 for each."""
        if self.extra(budget) is None:
            return np.full(self._chain.offsets.size - 1, -1)
        return trace(self._chain, False, self._bits, self._slot(budget))

    def _slot(self, budget: int) -> int:
        slot = (budget - self._scale.base) // self._scale.unit
        if slot >= self._scale.slots:
            raise ValueError(f"budget {budget} is above the one that was solved for")
        return slot


def solve_all(
    offsets: Int64,
    retained: Int64,
    forward_peak: Int64,
    backward_peak: Int64,
    extra: Int64,
    forward_base: Int64,
    backward_base: Int64,
    budget: int,
    *,
    slots: int = DEFAULT_SLOTS,
    arena_limit_bytes: int = DEFAULT_ARENA_LIMIT_BYTES,
    cancel: CancelFlag | None = None,
) -> Curve:
    """Solve for every budget up to ``budget`` at once, in at most ``slots`` slots.

    Columns are those of ``ceiling.frontier``. Raises ``ArenaLimitError`` if that takes more memory
    than ``arena_limit_bytes``, ``SolveCancelled`` at the next block once ``cancel[0]`` is set.
    """
    columns = checked(offsets, retained, forward_peak, backward_peak)
    extra = columns.per_option("extra", natural("extra", extra))
    need = np.maximum(*columns.needs(forward_base, backward_base))
    slots, budget = _checked(slots, 1, columns.blocks), integer("budget", budget)
    if budget > 2 * MAX_BYTES:
        raise OverflowError(f"budget {budget} is above 2^62 bytes")
    kind = cell_type(extra, columns.offsets)
    scale = _scale(columns, need, budget, slots)
    chain = _backward(columns, need, extra.astype(kind), scale)
    lease, row, bits = _swept(chain, False, scale, kind, arena_limit_bytes, flag(cancel))
    return Curve(scale, chain, row, bits, lease)


def solve_one(
    table: Table,
    *,
    slots: int = DEFAULT_SLOTS,
    arena_limit_bytes: int = DEFAULT_ARENA_LIMIT_BYTES,
    cancel: CancelFlag | None = None,
) -> tuple[Int64, int] | None:
    """Return a plan of least extra in at most ``slots`` slots, and its extra, or None.

    Of those the one that retains least is chosen, then, from the last block backwards, the lower
    option. Raises as ``solve_all``.
    """
    blocks, kind = table.offsets.size - 1, cell_type(table.extra, table.offsets)
    slots = _checked(slots, LEAST_SLOTS, blocks)
    scale, chain = _forward(table, kind, slots)
    lease, row, bits = _swept(chain, True, scale, kind, arena_limit_bytes, flag(cancel))
    with lease:
        cell = int(row.argmin())
        if row[cell] == NEVER[kind]:
            return None
        return trace(chain, True, bits, cell), int(row[cell])


def _checked(slots: int, least: int, blocks: int) -> int:
    if integer("slots", slots) < least or blocks == 0:
        raise ValueError(
            f"{blocks} blocks in {slots} slots: give a block and {least} or more slots"
        )
    return int(slots)


def cell_type(extra: Int64, offsets: Int64) -> Any:
    """Return the type of cells that holds every plan's extra; int32 halves time and memory."""
    most = sum_of_largest("extra", extra, offsets, NEVER[np.int64] - 1)
    return np.int32 if most < NEVER[np.int32] else np.int64


def unit_for(table: Table, slots: int) -> int:
    """Return the bytes of a slot with which ``solve_one`` solves."""
    return _forward(table, np.int64, slots)[0].unit


def _scale(columns: Columns, need: Int64, budget: int, slots: int) -> Scale:
    """Return the unit in which ``budget`` is a slot; what every option needs takes none."""
    base = int(need.min())
    room = max(budget - base, 0)
    unit = max(-(-(room + 1) // slots), 1)
    return Scale(base, unit, room // unit + 1)


def _backward(columns: Columns, need: Int64, extra: Cells, scale: Scale) -> Chain:
    retained, first = -(-columns.retained // scale.unit), -(-(need - scale.base) // scale.unit)
    retained[columns.offsets[-2] :] = 0  # nothing comes after the last block
    end = np.full_like(retained, scale.slots + BLOCK)
    return Chain(columns.offsets, retained, np.maximum(first, retained), end, extra)


def _forward(table: Table, kind: Any, slots: int) -> tuple[Scale, Chain]:
    """Return the chain in a unit in which no prefix takes more than the slots."""
    unit = 1
    while True:
        retained, ceiling = -(-table.retained // unit), table.ceiling // unit
        end = np.empty_like(retained)
        widest = reach(table.offsets, retained, ceiling, end)
        if widest <= slots:
            break
        unit = max(unit + 1, -(-unit * widest // slots))
    chain = Chain(table.offsets, retained, retained, end, table.extra.astype(kind))
    return Scale(0, unit, widest), chain


def _swept(
    chain: Chain, forward: bool, scale: Scale, kind: Any, limit_bytes: int, cancel: CancelFlag
) -> tuple[Lease, Cells, Bits]:
    """Sweep in memory that is lent; return the lease, the last row done and the bits."""
    stride, options = -(-scale.slots // BLOCK) * BLOCK, chain.retained.size
    cell_bytes = np.dtype(kind).itemsize
    needed = aligned(options * stride // 8) + aligned(2 * stride * cell_bytes)
    if needed > limit_bytes:
        raise _refusal(scale, options, cell_bytes, needed, limit_bytes)
    lease = Lease(needed)
    bits, rows = lease.array(options * stride // BLOCK, np.uint64), lease.array(2 * stride, kind)
    start = sweep(chain, forward, rows, bits, kind(NEVER[kind]), cancel)
    if start == CANCELLED:
        lease.give_back()
        raise SolveCancelled(0)
    return lease, rows[start : start + scale.slots], bits


def _refusal(
    scale: Scale, options: int, cell_bytes: int, needed: int, limit: int
) -> ArenaLimitError:
    slots = max(8 * (limit - 4 * LINE) // (options + 16 * cell_bytes) - BLOCK, 0)
    advice = f"slots={slots} would do" if slots else "no number of slots would do"
    return ArenaLimitError(
        f"{options} options in {scale.slots} slots take {needed} bytes of memory, above the limit "
        f"of {limit}: {advice}",
        needed_bytes=needed,
        unit=scale.unit * -(-scale.slots // slots) if slots else None,
    )
