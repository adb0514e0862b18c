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
    sequence_parallel: bool
    sharding: Sharding

    @property
    def shards_parameters(self) -> bool:
        """Whether units are gathered to run; FSDP2 casts into gathered units on one rank too."""
        zero_3 = self.sharding is Sharding.ZERO_3 and self.dp_shard > 1
        return zero_3 or self.sharding is Sharding.FSDP2

    @property
    def shards_gradients(self) -> bool:
        """Whether each rank keeps a shard of the gradients only."""
        return self.shards_parameters or (self.sharding is Sharding.ZERO_2 and self.dp_shard > 1)

    @property
    def shards_optimizer(self) -> bool:
        """Whether each rank keeps a shard of the optimizer state only."""
        return self.dp_shard > 1 and self.sharding is not Sharding.REPLICATED

    @property
    def shard_axis(self) -> str:
        """The sharding axis as the ledger writes it."""
        return f"dp_shard={self.dp_shard}"


def resolve(parallelism: Parallelism) -> Degrees:
    """Fill in the degrees that were not given.

    Ranks beyond tp, pp and cp are data ranks; they shard where something is sharded, and
    replicate where nothing is.
    """
    tp, pp, cp = (parallelism.tp or 1, parallelism.pp or 1, parallelism.cp or 1)
    sharding = parallelism.sharding or Sharding.REPLICATED
    replicate, shard = _data_degrees(parallelism, sharding, tp * pp * cp)
    return Degrees(
        world_size=tp * pp * cp * replicate * shard,
        dp_replicate=replicate,
        dp_shard=shard,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=parallelism.ep or 1,
        sequence_parallel=bool(parallelism.sequence_parallel),
        sharding=sharding,
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
