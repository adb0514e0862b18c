"""How a run is spread over ranks: the degree of every axis, and what is sharded."""

import enum
from dataclasses import dataclass
from math import prod

from haversack import checks
from haversack.errors import Violation, check

MOST_RANKS = 2**24  # above any cluster, and products of degrees stay exact


class Sharding(enum.IntEnum):
    """How model states are divided among the data-parallel ranks."""

    UNSPECIFIED = 0
    REPLICATED = 1
    ZERO_1 = 2
    ZERO_2 = 3
    ZERO_3 = 4
    FSDP2 = 5
    FSDP1 = 6
    DISTRIBUTED_OPTIMIZER = 7


class WrapPolicy(enum.IntEnum):
    """What is gathered as one unit."""

    UNSPECIFIED = 0
    BLOCKS = 1
    LAYERS = 2


class BackwardPrefetch(enum.IntEnum):
    """FSDP1: when the next unit is gathered in backward."""

    UNSPECIFIED = 0
    PRE = 1
    POST = 2
    NONE = 3


class PipelineSchedule(enum.IntEnum):
    """Order in which a pipeline stage runs its microbatches."""

    UNSPECIFIED = 0
    ONE_F_ONE_B = 1
    INTERLEAVED = 2
    GPIPE = 3


class ContextParallel(enum.IntEnum):
    """How the keys and values of other ranks reach a rank under context parallelism."""

    UNSPECIFIED = 0
    RING = 1
    ALL_GATHER = 2
    ALL_TO_ALL = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Parallelism:
    """Degrees whose product is the world size: dp_replicate * dp_shard * cp * tp * pp.

    Degrees that are not given are 1, and ``dp_shard`` takes what is left; with nothing sharded,
    ``dp_replicate`` does.
    """

    world_size: int | None = None
    dp_replicate: int | None = None
    dp_shard: int | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    ep: int | None = None
    sequence_parallel: bool | None = None
    sharding: Sharding = Sharding.UNSPECIFIED
    prefetch_units: int | None = None
    reduce_bucket_elements: int | None = None
    reshard_after_forward: bool | None = None
    pipeline_schedule: PipelineSchedule = PipelineSchedule.UNSPECIFIED
    virtual_stages: int | None = None
    stage_layers: tuple[int, ...] = ()
    expert_tp: int | None = None
    expert_load_permille: int | None = None
    expert_capacity_permille: int | None = None
    context_parallel: ContextParallel = ContextParallel.UNSPECIFIED
    wrap: WrapPolicy = WrapPolicy.UNSPECIFIED
    layers_per_unit: int | None = None
    reshard_ranks: int | None = None
    backward_prefetch: BackwardPrefetch = BackwardPrefetch.UNSPECIFIED
    forward_prefetch: bool | None = None
    limit_all_gathers: bool | None = None
    overlap_reduce: bool | None = None
    contiguous_gradients: bool | None = None
    prefetch_elements: int | None = None
    max_live_elements: int | None = None
    max_reuse_elements: int | None = None
    persistent_elements: int | None = None
    gradient_as_bucket_view: bool | None = None
    offload_optimizer: bool | None = None
    offload_parameters: bool | None = None
    pin_memory: bool | None = None
    ranks_per_node: int | None = None

    def __post_init__(self) -> None:
        most = MOST_RANKS
        found: list[Violation] = []
        axes = ("world_size", "dp_replicate", "dp_shard", "tp", "pp", "cp", "ep", "expert_tp")
        for name in axes:
            path = f"parallelism.{name}"
            found += checks.optional_integer(path, getattr(self, name), least=1, most=most)
        found += checks.optional_integer("parallelism.prefetch_units", self.prefetch_units, most=64)
        found += checks.optional_integer(
            "parallelism.reduce_bucket_elements", self.reduce_bucket_elements, least=1
        )
        found += checks.optional_integer(
            "parallelism.virtual_stages", self.virtual_stages, least=1, most=most
        )
        found += checks.column("parallelism.stage_layers", self.stage_layers)
        for name in ("expert_load_permille", "expert_capacity_permille"):
            path = f"parallelism.{name}"
            found += checks.optional_integer(path, getattr(self, name), least=1, most=most)
        for name in ("layers_per_unit", "reshard_ranks", "ranks_per_node"):
            path = f"parallelism.{name}"
            found += checks.optional_integer(path, getattr(self, name), least=1, most=most)
        for name in ("prefetch_elements", "max_live_elements", "max_reuse_elements"):
            found += checks.optional_integer(f"parallelism.{name}", getattr(self, name))
        found += checks.optional_integer(
            "parallelism.persistent_elements", self.persistent_elements
        )
        check(found)
        check(self._product())

    def _product(self) -> list[Violation]:
        """Check the one invariant; the sentence prints every factor."""
        if self.world_size is None:
            return []
        degrees = {
            name: getattr(self, name) for name in ("dp_replicate", "dp_shard", "cp", "tp", "pp")
        }
        known = prod(degree for degree in degrees.values() if degree is not None)
        data_axes_known = degrees["dp_replicate"] is not None and degrees["dp_shard"] is not None
        if self.world_size % known or (data_axes_known and known != self.world_size):
            factors = " * ".join(f"{name} {each}" for name, each in degrees.items() if each)
            sentence = f"{self.world_size} ranks are not {factors}; make the product the world size"
            if not data_axes_known:
                sentence = f"{self.world_size} ranks are no multiple of {factors}; make them one"
            return [Violation("parallelism.world_size", sentence)]
        ranks, experts = self.world_size // (self.pp or 1), self.expert_tp or self.tp or 1
        if ranks % ((self.ep or 1) * experts):
            sentence = (
                f"{self.ep or 1} ranks of experts, each split over {experts}, do not divide the "
                f"{ranks} ranks of a pipeline stage"
            )
            name = "ep" if self.ep or not self.expert_tp else "expert_tp"
            return [Violation(f"parallelism.{name}", sentence)]
        return []
