"""How one parameter is divided over ranks: by tensor and expert parallelism, then in shards.

Knows shapes and degrees, and nothing of bytes but those of a frozen parameter.
"""

from typing import NamedTuple

from haversack_server.memory.architecture import Parameter
from haversack_server.memory.optimizers.tensors import Shape


def shard_evenly(elements: int, ranks: int) -> int:
    """Give the size of one shard of a flat buffer, padded so that all are equal."""
    return -(-elements // ranks)


class Split(NamedTuple):
    """How parameters of one kind are divided: by tensor and expert parallelism, then in shards."""

    tp: int
    ep: int
    ranks: int


def stored_bytes(parameter: Parameter, elements: int) -> int:
    """Bytes of some elements of a frozen parameter, rounded up."""
    return -(-(parameter.frozen_bytes or 0) * elements // parameter.count)


def count_on(parameter: Parameter, split: Split) -> int:
    """Count one parameter's elements; an expert weight's first dimension is that of experts."""
    count = parameter.count_on(split.tp)
    if not parameter.expert:
        return count
    return count // parameter.shape[0] * -(-parameter.shape[0] // split.ep)


def shape_on(parameter: Parameter, split: Split) -> Shape:
    """Give one parameter's shape on the rank, before it is sharded."""
    shape, axis = list(parameter.shape), parameter.tensor_parallel_axis
    if parameter.expert:
        shape[0] = -(-shape[0] // split.ep)
    if axis is not None:
        shape[axis] = -(-shape[axis] // split.tp)
    return tuple(shape)


def first_dimension_shard(parameter: Parameter, split: Split) -> int:
    """Count a shard of whole rows of the first dimension, padded so that all are equal."""
    rows = -(-parameter.shape[0] // split.ep)
    local_rows = -(-rows // split.tp) if parameter.tensor_parallel_axis == 0 else rows
    row = count_on(parameter, split) // local_rows
    return shard_evenly(local_rows, split.ranks) * row
