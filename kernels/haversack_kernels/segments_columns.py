"""The columns of a chain with segments: checked in bytes, and rounded to slots.

What is held while other things run (retained bytes, boundaries, gathered units) is rounded piece
by piece; what lives in one moment is added in bytes and rounded once. Knows no recurrence.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import Int64, column, natural, total
from haversack_kernels.columns import sum_of_largest

Mask: TypeAlias = NDArray[np.bool_]

MOST_BYTES = 1 << 59
"""Largest peak or base, and largest sum of what all blocks may hold, so that moments fit int64."""
MOST_TIME = 1 << 60
"""Largest time of any schedule."""

PER_OPTION = ("retained", "forward_peak", "backward_peak", "extra")
PER_BLOCK = ("plain_peak", "plain_time", "boundary", "gathered", "forward_base", "backward_base")


class Chain(NamedTuple):
    """Hold a chain of blocks; the options of block ``j`` are the rows ``offsets[j]:offsets[j+1]``.

    Per option, shape ``(options,)``: bytes ``retained`` from the block's forward to its backward,
    its output included; the ``forward_peak`` and ``backward_peak`` that it adds while it runs; the
    ``extra`` time; and whether it may run ``inside`` a segment. Per block, shape ``(blocks,)``:
    ``plain_peak`` and ``plain_time`` of a forward that keeps nothing but its output; the bytes of
    this output, the ``boundary``; the block's own ``gathered`` unit, which both bases contain; all
    other bytes at the block's forward, ``forward_base``, and at its backward, ``backward_base``.
    Times share one unit. All are int64 and >= 0 but ``inside``, which is bool.
    """

    offsets: Int64
    retained: Int64
    forward_peak: Int64
    backward_peak: Int64
    extra: Int64
    inside: Mask
    plain_peak: Int64
    plain_time: Int64
    boundary: Int64
    gathered: Int64
    forward_base: Int64
    backward_base: Int64

    @property
    def blocks(self) -> int:
        """Return the number of blocks."""
        return self.offsets.size - 1


class Slots(NamedTuple):
    """Hold a chain for the kernels: slots, but for the bytes of what a moment adds up.

    ``first`` and ``first_carried`` are the needs of a plain first forward at the start of a segment
    and further on, where the boundary before is there too; ``carried`` is the same in bytes, for
    the forward of an inner segment. ``under`` is the backward base and the gradient of the block's
    output. ``gathered_before`` has shape ``(blocks + 1,)``: a sum over the blocks before. Bytes
    become slots as ``(bytes + slack) // unit``.
    """

    offsets: Int64
    retained: Int64
    save_forward: Int64
    forward_peak: Int64
    backward: Int64
    extra: Int64
    inside: Mask
    plain_peak: Int64
    carried: Int64
    first: Int64
    first_carried: Int64
    time: Int64
    boundary: Int64
    gathered_before: Int64
    under: Int64
    unit: int
    slack: int


def checked(chain: Chain) -> Chain:
    """Return a copy of the chain, or raise if columns do not fit, are negative or too large."""
    offsets = column("offsets", chain.offsets)
    if offsets.size < 2 or offsets[0] != 0:
        raise ValueError("offsets do not start at 0, or there is no block")
    empty = np.flatnonzero(np.diff(offsets) <= 0)
    if empty.size:
        raise ValueError(f"block {int(empty[0])} has no option: offsets do not increase there")
    read = {name: natural(name, getattr(chain, name)) for name in PER_OPTION + PER_BLOCK}
    result = Chain(offsets=offsets, inside=_mask(chain.inside), **read)
    for name in (*PER_OPTION, "inside"):
        _check_size(name, getattr(result, name), int(offsets[-1]), "options")
    for name in PER_BLOCK:
        _check_size(name, getattr(result, name), result.blocks, "blocks")
    _check_sums(result)
    return result


def _mask(values: object) -> Mask:
    if not isinstance(values, np.ndarray) or values.dtype != np.bool_ or values.ndim != 1:
        raise TypeError("inside is not a one-dimensional bool array")
    return np.array(values, order="C")


def _check_size(name: str, values: Int64 | Mask, size: int, things: str) -> None:
    if values.size != size:
        raise ValueError(f"{name} has {values.size} values for {size} {things}")


def _check_sums(chain: Chain) -> None:
    """Raise if bytes of a moment, or the time of any schedule, may leave int64."""
    sum_of_largest("retained", chain.retained, chain.offsets, MOST_BYTES)
    for name in ("boundary", "gathered"):
        if total(getattr(chain, name)) > MOST_BYTES:
            raise OverflowError(f"{name} sums up to more than 2^59 bytes")
    for name in ("forward_peak", "backward_peak", "plain_peak", "forward_base", "backward_base"):
        if getattr(chain, name).max() > MOST_BYTES:
            raise OverflowError(f"{name} reaches beyond 2^59 bytes")
    # A block lies in as many segments as there are blocks at most, and runs again for each.
    longest = chain.blocks * total(chain.plain_time) + total(chain.extra)
    if longest > MOST_TIME:
        raise OverflowError(f"times may add up to {longest}, above 2^60: use a coarser unit")


def rounded(chain: Chain, unit: int, slack: int) -> Slots:
    """Round to slots of ``unit`` bytes: up with a slack of ``unit - 1``, down with 0."""

    def slots(values: Int64) -> Int64:
        return (values + slack) // unit

    counts = np.diff(chain.offsets)
    before = np.concatenate([np.zeros(1, np.int64), chain.boundary[:-1]])
    return Slots(
        offsets=chain.offsets,
        retained=slots(chain.retained),
        save_forward=slots(np.repeat(chain.forward_base, counts) + chain.forward_peak),
        forward_peak=chain.forward_peak,
        backward=slots(np.repeat(chain.backward_base, counts) + chain.backward_peak),
        extra=chain.extra,
        inside=chain.inside,
        plain_peak=chain.plain_peak,
        carried=before + chain.plain_peak,
        first=slots(chain.forward_base + chain.plain_peak),
        first_carried=slots(chain.forward_base + before + chain.plain_peak),
        time=chain.plain_time,
        boundary=slots(chain.boundary),
        gathered_before=np.concatenate([np.zeros(1, np.int64), slots(chain.gathered).cumsum()]),
        under=chain.backward_base + chain.boundary,
        unit=unit,
        slack=slack,
    )


def kinds(table: Slots) -> Int64:
    """Return a number per block, equal where two blocks are the same inside every segment."""
    per_option = (table.retained, table.forward_peak, table.backward, table.extra, table.inside)
    gathered = np.diff(table.gathered_before)
    per_block = (table.plain_peak, table.time, table.boundary, gathered, table.under)
    seen: dict[bytes, int] = {}
    found = []
    for block, (start, end) in enumerate(zip(table.offsets[:-1], table.offsets[1:], strict=True)):
        parts = [values[start:end].tobytes() for values in per_option]
        parts += [values[block : block + 1].tobytes() for values in per_block]
        found.append(seen.setdefault(b"".join(parts), len(seen)))
    return np.array(found, dtype=np.int64)
