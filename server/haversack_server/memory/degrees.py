"""The degree of every axis, filled in; and what the model cannot spread yet."""

from dataclasses import dataclass

from haversack.errors import InvalidRequestError
from haversack.parallelism import Parallelism, Sharding


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Every degree of a run; their product is ``world_size``."""

    world_size: int
    dp_replicate: int
    dp_shard: int
    tp: int
    pp: int
    cp: int
    ep: int
    expert_tp: int
    sequence_parallel: bool
    sharding: Sharding

    @property
    def shard_ranks(self) -> int:
        """Ranks among which states are sharded: context-parallel ranks hold the same weights."""
        return self.dp_shard * self.cp if self.sharding is not Sharding.REPLICATED else 1

    @property
    def expert_shard_ranks(self) -> int:
        """Ranks among which the states of experts are sharded: those with the same experts.

        Experts take their ranks from all but the pipeline (Megatron-LM: expert data ranks = world /
        (pp x ep x expert_tp)).
        """
        if self.sharding is Sharding.REPLICATED:
            return 1
        return max(1, self.dp_shard * self.cp * self.tp // (self.ep * self.expert_tp))

    @property
    def shards_parameters(self) -> bool:
        """Whether units are gathered to run; FSDP casts into gathered units on one rank too."""
        zero_3 = self.sharding is Sharding.ZERO_3 and self.shard_ranks > 1
        return zero_3 or self.sharding in (Sharding.FSDP1, Sharding.FSDP2)

    @property
    def shards_gradients(self) -> bool:
        """Whether each rank keeps a shard of the gradients only."""
        return self.shards_parameters or (self.sharding is Sharding.ZERO_2 and self.shard_ranks > 1)

    @property
    def shards_optimizer(self) -> bool:
        """Whether each rank keeps a shard of the optimizer state only."""
        return self.shard_ranks > 1

    @property
    def splits_of_weights(self) -> tuple[str, ...]:
        """The axes that divide the weights themselves, as the ledger writes them."""
        named = {"tp": self.tp, "pp": self.pp, "ep": self.ep}
        return tuple(f"{axis}={ranks}" for axis, ranks in named.items() if ranks > 1)

    @property
    def axes_in_use(self) -> int:
        """Count the axes that need a communicator."""
        axes = (self.dp_replicate, self.dp_shard, self.tp, self.pp, self.cp, self.ep)
        return sum(ranks > 1 for ranks in axes)

    @property
    def shard_axis(self) -> str:
        """The sharding axis as the ledger writes it."""
        return f"dp_shard={self.dp_shard}" + (f" x cp={self.cp}" if self.cp > 1 else "")


def resolve(parallelism: Parallelism) -> Degrees:
    """Fill in the degrees that were not given.

    Ranks beyond tp, pp and cp are data ranks; they shard where something is sharded, and
    replicate where nothing is.
    """
    tp, pp, cp = (parallelism.tp or 1, parallelism.pp or 1, parallelism.cp or 1)
    sharding = parallelism.sharding or Sharding.REPLICATED
    replicate, shard = _data_degrees(parallelism, sharding, tp * pp * cp)
    _check_experts(parallelism, replicate * shard * cp * tp)
    _check_resharding(parallelism, shard * cp)
    return Degrees(
        world_size=tp * pp * cp * replicate * shard,
        dp_replicate=replicate,
        dp_shard=shard,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=parallelism.ep or 1,
        expert_tp=parallelism.expert_tp or tp,
        sequence_parallel=bool(parallelism.sequence_parallel),
        sharding=sharding,
    )


def _check_experts(parallelism: Parallelism, ranks: int) -> None:
    """Refuse experts that need more ranks than there are, where no world size said so."""
    ep, split = parallelism.ep or 1, parallelism.expert_tp or parallelism.tp or 1
    if ranks % (ep * split):
        raise InvalidRequestError(
            f"ep={ep} with experts split over {split} does not divide the {ranks} ranks of a "
            "pipeline stage; give world_size, or smaller degrees",
            field="parallelism.ep",
        )


def _check_resharding(parallelism: Parallelism, ranks: int) -> None:
    """Refuse fewer ranks that ``fully_shard`` refuses; on one rank nothing is resharded."""
    fewer = parallelism.reshard_ranks
    if fewer and ranks > 1 and ranks % fewer and parallelism.sharding is Sharding.FSDP2:
        raise InvalidRequestError(
            f"units cannot be resharded to {fewer} of {ranks} ranks; give a number that divides "
            "them, or reshard_after_forward yes or no",
            field="parallelism.reshard_ranks",
        )


def _data_degrees(parallelism: Parallelism, sharding: Sharding, others: int) -> tuple[int, int]:
    replicate, shard = parallelism.dp_replicate, parallelism.dp_shard
    if sharding is Sharding.REPLICATED and (shard or 1) > 1:
        raise InvalidRequestError(
            f"{shard} ranks shard nothing while the sharding is REPLICATED; choose ZERO_1, ZERO_2, "
            "ZERO_3 or FSDP2",
            field="parallelism.dp_shard",
        )
    if parallelism.world_size is None:
        return replicate or 1, shard or 1
    data_ranks = parallelism.world_size // others
    if sharding is Sharding.REPLICATED:
        return data_ranks, 1
    if shard is not None:
        return data_ranks // shard, shard
    return replicate or 1, data_ranks // (replicate or 1)


def assumed(parallelism: Parallelism, degrees: Degrees) -> tuple[str, ...]:
    """Say which degrees and which sharding were filled in."""
    made = []
    if parallelism == Parallelism():
        return ("ranks: 1, so nothing is divided",)
    axes = ("dp_replicate", "dp_shard", "tp", "pp", "cp", "ep")
    filled = [f"{axis}={getattr(degrees, axis)}" for axis in axes if not getattr(parallelism, axis)]
    if filled:
        made.append(f"degrees that were not given: {', '.join(filled)}")
    if parallelism.sharding is Sharding.UNSPECIFIED and degrees.dp_replicate > 1:
        made.append("sharding: none, every data rank holds all model states")
    if degrees.tp > 1 and not degrees.sequence_parallel:
        made.append("sequence parallelism: off, tp ranks hold norms and residuals whole")
    return tuple(made)
