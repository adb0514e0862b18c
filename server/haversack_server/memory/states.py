"""Model states of one rank, unit by unit: what it keeps, and what a unit takes when gathered.

States are what ZeRO and FSDP2 shard: parameters, gradients, optimizer state. Their sum is the
steady part of a step, not its peak. Knows nothing of activations or of time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from haversack.parallelism import Sharding
from haversack_server.memory.architecture import Parameter, Unit
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.recipe import Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStates:
    """Elements of one unit on one rank.

    ``whole`` is the unit as it is computed with (after tensor parallelism), padded as its gather
    is; ``shard`` is the rank's part of it.
    """

    name: str
    whole: int
    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStates:
    """Bytes of model states on one rank, and the units they come from."""

    units: tuple[UnitStates, ...]
    parameter_bytes: int
    gradient_bytes: int
    master_bytes: int
    moment_bytes: int
    temporary_bytes: int

    @property
    def optimizer_bytes(self) -> int:
        """Master copy and moments."""
        return self.master_bytes + self.moment_bytes

    @property
    def steady_bytes(self) -> int:
        """Parameters, gradients and optimizer state; not a peak."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes


def shard_evenly(elements: int, ranks: int) -> int:
    """Give the size of one shard of a flat buffer, padded so that all are equal."""
    return -(-elements // ranks)


def architecture_units(units: Sequence[Unit], degrees: Degrees) -> tuple[UnitStates, ...]:
    """Count each unit's elements on one rank; equal units are counted once.

    FSDP2 shards every parameter on its first dimension and pads that to a multiple of the ranks;
    ZeRO shards a flat buffer.
    """
    counted: dict[int, tuple[int, int]] = {}
    made: list[UnitStates] = []
    for unit in units:
        key = id(unit.parameters)
        if key not in counted:
            counted[key] = _count(unit.parameters, degrees)
        whole, shard = counted[key]
        made.append(UnitStates(name=unit.name, whole=whole, shard=shard))
    return tuple(made)


def _count(parameters: Sequence[Parameter], degrees: Degrees) -> tuple[int, int]:
    tp, ranks = degrees.tp, degrees.dp_shard
    if degrees.sharding is not Sharding.FSDP2 or ranks == 1:
        whole = sum(parameter.count_on(tp) for parameter in parameters)
        return whole, shard_evenly(whole, ranks)
    shard = sum(_first_dimension_shard(parameter, tp, ranks) for parameter in parameters)
    return shard * ranks, shard


def _first_dimension_shard(parameter: Parameter, tp: int, ranks: int) -> int:
    rows = parameter.shape[0]
    local_rows = -(-rows // tp) if parameter.tensor_parallel_axis == 0 else rows
    row = parameter.count_on(tp) // local_rows
    return shard_evenly(local_rows, ranks) * row


def rank_states(units: Sequence[UnitStates], recipe: Recipe, degrees: Degrees) -> RankStates:
    """Sum the states that one rank keeps."""
    whole = sum(unit.whole for unit in units)
    shard = sum(unit.shard for unit in units)
    kept = {
        "parameter_bytes": (recipe.parameter, degrees.shards_parameters),
        "gradient_bytes": (recipe.gradient, degrees.shards_gradients),
        "master_bytes": (recipe.master, degrees.shards_optimizer),
        "moment_bytes": (recipe.moments, degrees.shards_optimizer),
        "temporary_bytes": (recipe.temporary, degrees.shards_optimizer),
    }
    sizes = {name: each * (shard if sharded else whole) for name, (each, sharded) in kept.items()}
    return RankStates(units=tuple(units), **sizes)
