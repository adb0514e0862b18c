"""Model states of one rank, unit by unit: what it keeps, and what a unit takes when gathered.

States are what ZeRO and FSDP2 shard: parameters, gradients, optimizer state. Their sum is the
steady part of a step, not its peak. Knows nothing of activations or of time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from haversack.parallelism import Sharding
from haversack_server.memory.architecture import Parameter, Unit, UnitKind
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.fp8 import is_multiplied
from haversack_server.memory.offload import ALL, EMPTY, HostStates, Kept, Offload
from haversack_server.memory.optimizers.state import moments_of
from haversack_server.memory.optimizers.temporaries import largest_temporary_bytes, temporary_bytes
from haversack_server.memory.optimizers.tensors import Shape, Updated
from haversack_server.memory.parameter_split import (
    Split,
    count_on,
    first_dimension_shard,
    shape_on,
    shard_evenly,
    stored_bytes,
)
from haversack_server.memory.recipe import Recipe

_DEEPSPEED = (Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3)

# ZeRO updates one flat tensor of a rank, FSDP1 one of each unit; Megatron-LM a flat buffer.
_FLAT = (
    Sharding.ZERO_1,
    Sharding.ZERO_2,
    Sharding.ZERO_3,
    Sharding.FSDP1,
    Sharding.DISTRIBUTED_OPTIMIZER,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStates:
    """Elements of one unit on one rank.

    ``whole`` is the unit as it is computed with (after tensor parallelism), padded as its gather
    is; ``shard`` is the rank's part of it. ``unpadded`` is None where it is ``whole``.
    ``parameters`` are (whole, shard) of each parameter, in order; a single one if not known.
    ``shapes`` are theirs, whole; () if not known. ``of_layer``: neither embedding nor head.
    Frozen ones are in ``whole`` and ``shard``, and in neither of the others: they have no
    gradients. ``frozen_bytes`` are stored on the rank, of which ``frozen_shard_bytes`` if sharded.
    ``multiplied`` are those of matrices whose products may run in 8 bits.
    """

    name: str
    whole: int
    shard: int
    unpadded: int | None = None
    parameters: tuple[tuple[int, int], ...] = ()
    shapes: tuple[Shape, ...] = ()
    of_layer: bool = False
    frozen_shard: int = 0
    frozen_bytes: int = 0
    frozen_shard_bytes: int = 0
    multiplied: int = 0

    @property
    def elements(self) -> int:
        """Elements without padding: those of its gradients."""
        return self.whole if self.unpadded is None else self.unpadded

    @property
    def trained_shard(self) -> int:
        """Elements of the rank's part that train: those of its sharded gradients."""
        return self.shard - self.frozen_shard

    @property
    def trained_whole(self) -> int:
        """Elements that train, padded as their reduction is where they are sharded."""
        return (
            self.whole if not self.frozen_shard else self.whole // self.shard * self.trained_shard
        )

    @property
    def largest(self) -> int:
        """Elements of its largest parameter that trains, whole."""
        return max((whole for whole, _ in self.parameters), default=self.elements)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStates:
    """Bytes of model states on the device of one rank, and the units they come from.

    ``host`` is what it keeps on the host instead, or may have paged out to it.
    """

    units: tuple[UnitStates, ...]
    parameter_bytes: int
    gradient_bytes: int
    master_bytes: int
    moment_bytes: int
    temporary_bytes: int
    host: HostStates = EMPTY

    @property
    def optimizer_bytes(self) -> int:
        """Master copy and moments."""
        return self.master_bytes + self.moment_bytes

    @property
    def steady_bytes(self) -> int:
        """Parameters, gradients and optimizer state; not a peak."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes


def joined(first: UnitStates, second: UnitStates) -> UnitStates:
    """Give the elements of both."""
    return UnitStates(
        name=f"{first.name} and {second.name}",
        whole=first.whole + second.whole,
        shard=first.shard + second.shard,
        unpadded=first.elements + second.elements,
        parameters=first.parameters + second.parameters,
        shapes=first.shapes + second.shapes,
        of_layer=first.of_layer and second.of_layer,
        frozen_shard=first.frozen_shard + second.frozen_shard,
        frozen_bytes=first.frozen_bytes + second.frozen_bytes,
        frozen_shard_bytes=first.frozen_shard_bytes + second.frozen_shard_bytes,
        multiplied=first.multiplied + second.multiplied,
    )


def architecture_units(units: Sequence[Unit], degrees: Degrees) -> tuple[UnitStates, ...]:
    """Count each unit's elements on one rank; equal units are counted once.

    FSDP2 shards every parameter on its first dimension and pads that to a multiple of the ranks;
    ZeRO and FSDP1 shard a flat buffer.
    """
    counted: dict[int, UnitStates] = {}
    made: list[UnitStates] = []
    for unit in units:
        key = id(unit.parameters)
        if key not in counted:
            counted[key] = _count(unit.parameters, degrees)
        one = counted[key]
        # Not ``replace``, which looks at every field first: a model has a hundred units.
        made.append(
            UnitStates(
                name=unit.name,
                whole=one.whole,
                shard=one.shard,
                unpadded=one.unpadded,
                parameters=one.parameters,
                shapes=one.shapes,
                of_layer=unit.kind is UnitKind.LAYER,
                frozen_shard=one.frozen_shard,
                frozen_bytes=one.frozen_bytes,
                frozen_shard_bytes=one.frozen_shard_bytes,
                multiplied=one.multiplied,
            )
        )
    return tuple(made)


def _count(parameters: Sequence[Parameter], degrees: Degrees) -> UnitStates:
    """Count dense and expert parameters apart, since other ranks share the latter."""
    dense = [parameter for parameter in parameters if not parameter.expert]
    experts = [parameter for parameter in parameters if parameter.expert]
    ranks = degrees.expert_shard_ranks
    made = _counted(dense, degrees, Split(tp=degrees.tp, ep=1, ranks=degrees.shard_ranks))
    if not experts:
        return made
    split = Split(tp=degrees.expert_tp, ep=degrees.ep, ranks=ranks)
    return joined(made, _counted(experts, degrees, split))


def _counted(parameters: Sequence[Parameter], degrees: Degrees, split: Split) -> UnitStates:
    """Count the elements of parameters on one rank: as they are computed with, and its shard."""
    by_rows = degrees.sharding is Sharding.FSDP2
    counts = [count_on(parameter, split) for parameter in parameters]
    shards = [
        first_dimension_shard(parameter, split) if by_rows else shard_evenly(count, split.ranks)
        for parameter, count in zip(parameters, counts, strict=True)
    ]
    shard = sum(shards) if by_rows else shard_evenly(sum(counts), split.ranks)
    rows = list(zip(parameters, counts, shards, strict=True))
    training = [row for row in rows if row[0].frozen_bytes is None]
    frozen = [row for row in rows if row[0].frozen_bytes is not None]
    return UnitStates(
        name="",
        whole=shard * split.ranks if degrees.shards_parameters else sum(counts),
        shard=shard,
        unpadded=sum(count for _, count, _ in training),
        parameters=tuple((count, part) for _, count, part in training),
        shapes=tuple(shape_on(parameter, split) for parameter, _, _ in training),
        frozen_shard=sum(part for _, _, part in frozen),
        frozen_bytes=sum(stored_bytes(parameter, count) for parameter, count, _ in frozen),
        frozen_shard_bytes=sum(stored_bytes(parameter, part) for parameter, _, part in frozen),
        multiplied=sum(count for each, count, _ in training if is_multiplied(each)),
    )


def rank_states(
    units: Sequence[UnitStates],
    recipe: Recipe,
    degrees: Degrees,
    kept: Kept = ALL,
) -> RankStates:
    """Sum the states that one rank keeps, on the device and on the host."""
    # Padding is gathered with the rest, but nobody keeps a whole copy of it.
    whole = sum(unit.elements for unit in units)
    shard = sum(unit.shard - unit.frozen_shard for unit in units)
    held = {
        "parameter_bytes": (recipe.parameter, degrees.shards_parameters),
        "gradient_bytes": (0 if kept.in_backward else recipe.gradient, degrees.shards_gradients),
        "master_bytes": (recipe.master, degrees.shards_optimizer),
    }
    sizes = {name: each * (shard if sharded else whole) for name, (each, sharded) in held.items()}
    sharded = degrees.shards_parameters
    sizes["parameter_bytes"] += sum(
        unit.frozen_shard_bytes if sharded else unit.frozen_bytes for unit in units
    )
    updated = _all_updated(units, degrees)
    moments = moments_of(recipe, updated)
    sizes["moment_bytes"] = moments.device_bytes
    temporaries = largest_temporary_bytes if kept.in_backward else temporary_bytes
    states = RankStates(
        units=tuple(units),
        temporary_bytes=temporaries(recipe, updated),
        host=HostStates(paged_bytes=moments.paged_bytes),
        **sizes,
    )
    trained = shard if degrees.shards_optimizer else whole
    return _offloaded(states, recipe, kept.offload, trained) if kept.offload else states


def _offloaded(states: RankStates, recipe: Recipe, offload: Offload, trained: int) -> RankStates:
    """Move what is offloaded to the host; the step runs there too, and so do its temporaries."""
    host = offload.host_states(
        recipe, trained, parameters=states.parameter_bytes, moments=states.moment_bytes
    )
    left = replace(
        states,
        parameter_bytes=0 if offload.parameters else states.parameter_bytes,
        gradient_bytes=0 if offload.gradients else states.gradient_bytes,
        host=replace(host, paged_bytes=states.host.paged_bytes),
    )
    if not offload.optimizer:
        return left
    return replace(left, master_bytes=0, moment_bytes=0, temporary_bytes=0)


def _all_updated(units: Sequence[UnitStates], degrees: Degrees) -> list[Updated]:
    """Say what the optimizer updates of each unit; equal units share what was made."""
    known: dict[tuple[int, ...], Updated] = {}
    made = []
    for unit in units:
        sizes = (unit.elements, unit.shard, unit.frozen_shard)
        key = (id(unit.parameters), unit.of_layer, *sizes)
        if key not in known:
            known[key] = _updated(unit, degrees)
        made.append(known[key])
    return made


def _updated(unit: UnitStates, degrees: Degrees) -> Updated:
    place = 1 if degrees.shards_optimizer else 0
    total = (unit.elements, unit.shard - unit.frozen_shard)[place]
    return Updated(
        elements=tuple(pair[place] for pair in unit.parameters) or (total,),
        shapes=unit.shapes,
        of_layer=unit.of_layer and bool(unit.shapes),
        flat=total if degrees.sharding in _FLAT else 0,
        joins_rank=degrees.sharding is not Sharding.FSDP1,
    )
