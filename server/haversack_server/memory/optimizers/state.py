"""Bytes of an optimizer's moments on one rank: on the device, and in managed memory beside it."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from haversack_server.memory.optimizers.kinds import KINDS, Form, Kind
from haversack_server.memory.optimizers.tensors import Updated, factors, sizes_of
from haversack_server.memory.recipe import Recipe

# bitsandbytes, optim/optimizer.py.
BLOCK = 256  # numbers that share a scale (blockwise, from 0.45 on; 2,048 before)
SMALLEST_QUANTIZED = 4_096  # min_8bit_size: smaller tensors keep fp32
SMALLEST_PAGED = 100_000  # get_state_buffer: smaller ones stay on the device
SCALE_BYTES = 4
MAP_BYTES = 256 * 4  # the values that a byte stands for, one table for each moment


class Moments(NamedTuple):
    """Bytes of the moments: allocated on the device, and paged."""

    device_bytes: int
    paged_bytes: int = 0


def moments_of(recipe: Recipe, units: Sequence[Updated]) -> Moments:
    """Add up the moments of the tensors of a rank."""
    kind = KINDS[recipe.optimizer]
    if kind.form is Form.FACTORED:
        return Moments(recipe.moment * kind.moments * sum(factors(unit) for unit in units))
    if kind.form is Form.MATRICES:
        numbers = sum(unit.total + unit.outside_matrices for unit in units)
        return Moments(recipe.moment * numbers)
    if kind.form is Form.WHOLE and not kind.paged:
        return Moments(recipe.moment * kind.moments * sum(unit.total for unit in units))
    return _by_tensor(kind, sizes_of(units))


def _by_tensor(kind: Kind, sizes: Sequence[int]) -> Moments:
    """Add up tensor by tensor; every size is looked at once."""
    device = paged = 0
    counted = Counter(sizes)
    for size, count in counted.items():
        numbers, scales = _numbers_bytes(kind, size), _scale_bytes(kind, size)
        if kind.paged and size >= SMALLEST_PAGED:
            paged += numbers * count
            device += scales * count
        else:
            device += (numbers + scales) * count
    if kind.form is Form.BLOCKS and any(size >= SMALLEST_QUANTIZED for size in counted):
        device += kind.moments * MAP_BYTES
    return Moments(device, paged)


def _numbers_bytes(kind: Kind, size: int) -> int:
    quantized = kind.form is Form.BLOCKS and size >= SMALLEST_QUANTIZED
    return kind.moments * size * (1 if quantized else kind.width or 0)


def _scale_bytes(kind: Kind, size: int) -> int:
    if kind.form is not Form.BLOCKS or size < SMALLEST_QUANTIZED:
        return 0
    return kind.moments * -(-size // BLOCK) * SCALE_BYTES
