"""The option columns of a chain of blocks, checked once for ``haversack_kernels.ceiling``.

Options of block ``j`` are the rows ``offsets[j]:offsets[j + 1]`` of every column. Knows no
algorithm.
"""

from dataclasses import dataclass

import numpy as np

from haversack_kernels._jit import Int64, column, natural, total

MAX_BYTES = 1 << 61
"""Largest peak, base, or sum of retained bytes that is computed with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """Hold the checked columns and what no prefix can exceed: ``all_retained``."""

    offsets: Int64
    retained: Int64
    forward_peak: Int64
    backward_peak: Int64
    all_retained: int

    @property
    def blocks(self) -> int:
        """Return the number of blocks."""
        return self.offsets.size - 1

    def spread(self, name: str, per_block: Int64) -> Int64:
        """Return a value per option from one per block."""
        values = column(name, per_block)
        if values.size != self.blocks:
            raise ValueError(f"{name} has {values.size} values for {self.blocks} blocks")
        return np.repeat(values, np.diff(self.offsets))

    def needs(self, forward_base: Int64, backward_base: Int64) -> tuple[Int64, Int64]:
        """Return, per option, all bytes but the prefix at the block's forward and backward."""
        forward = within_bounds("forward_base", self.spread("forward_base", forward_base))
        backward = within_bounds("backward_base", self.spread("backward_base", backward_base))
        return forward + self.forward_peak, backward + self.backward_peak

    def per_option(self, name: str, values: Int64) -> Int64:
        """Return ``values`` if there is one per option."""
        if values.shape != self.retained.shape:
            raise ValueError(f"{name} has {values.size} values for {self.retained.size} options")
        return values


def checked(
    offsets: Int64,
    retained: Int64,
    forward_peak: Int64,
    backward_peak: Int64,
    in_flight: int = 1,
) -> Columns:
    """Return the columns, or raise if they do not belong together or are too large to add.

    What is retained counts ``in_flight`` times.
    """
    if in_flight < 1:
        raise ValueError(f"in_flight is {in_flight}: at least one microbatch is in flight")
    offsets, retained = column("offsets", offsets), natural("retained", retained)
    _check_offsets(offsets, retained.size)
    columns = Columns(
        offsets=offsets,
        retained=retained,
        forward_peak=column("forward_peak", forward_peak),
        backward_peak=column("backward_peak", backward_peak),
        all_retained=sum_of_largest("retained", retained, offsets, MAX_BYTES // in_flight),
    )
    for name in ("forward_peak", "backward_peak"):
        within_bounds(name, columns.per_option(name, getattr(columns, name)))
    return columns


def within_bounds(name: str, values: Int64) -> Int64:
    """Return ``values`` unless they are too large to be added to each other in int64."""
    if values.size and (values.max() > MAX_BYTES or values.min() < -MAX_BYTES):
        raise OverflowError(f"{name} reaches beyond 2^61 bytes")
    return values


def _check_offsets(offsets: Int64, options: int) -> None:
    if offsets.size == 0 or offsets[0] != 0 or offsets[-1] != options:
        raise ValueError(f"offsets do not run from 0 to the number of options, {options}")
    empty = np.flatnonzero(np.diff(offsets) <= 0)
    if empty.size:
        raise ValueError(f"block {int(empty[0])} has no option: offsets do not increase there")


def sum_of_largest(name: str, values: Int64, offsets: Int64, most: int) -> int:
    """Sum the largest value of every block, or raise if that is above ``most``."""
    largest = total(np.maximum.reduceat(values, offsets[:-1])) if values.size else 0
    if largest > most:
        raise OverflowError(f"{name} sums up to {largest}, above {most}: use a coarser unit")
    return largest
