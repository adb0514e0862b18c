"""How a profiled step is spread over ranks that each have inputs of their own.

Over one rank, over replicas (``DistributedDataParallel``), over shards (FSDP2), or over replicas of
shards (FSDP2 on a mesh of two dimensions). Everything else is refused here, by name.
"""

from dataclasses import dataclass, fields

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.parallelism import Parallelism, Sharding

_RANKS = ("world_size", "dp_replicate", "sharding")
_OF_SHARDS = (*_RANKS, "dp_shard", "reshard_after_forward", "reshard_ranks", "prefetch_units")
_OF_REPLICAS = (*_RANKS, "gradient_as_bucket_view")
_KEPT: dict[int, str] = {True: "", False: ", not resharded after the forward"}


@dataclass(frozen=True, slots=True)
class Spread:
    """Ranks of a profiled step: each state has ``shards`` parts, each part ``replicas``."""

    shards: int
    replicas: int

    @property
    def ranks(self) -> int:
        """All ranks."""
        return self.shards * self.replicas

    @property
    def is_replicated(self) -> bool:
        """Whether every rank has the whole states, and there is more than one."""
        return self.shards == 1 and self.replicas > 1


def spread_of(parallelism: Parallelism) -> Spread:
    """Give the shards and replicas of a step; one rank where nothing is said of any.

    Raises NotSupportedError for what a profile is not planned for.
    """
    if parallelism.sharding is Sharding.FSDP2:
        _check_others(parallelism, _OF_SHARDS)
        return _sharded(parallelism)
    if parallelism.sharding not in (Sharding.UNSPECIFIED, Sharding.REPLICATED):
        raise _refusal(f"sharding {parallelism.sharding.name}")
    _check_others(parallelism, _OF_REPLICAS)
    ranks = parallelism.world_size or parallelism.dp_replicate or 1
    if parallelism.dp_replicate not in (None, ranks):
        raise _refusal(f"{parallelism.dp_replicate} replicas on {ranks} ranks that shard nothing")
    return Spread(shards=1, replicas=ranks)


def is_same_step(one: Parallelism, other: Parallelism) -> bool:
    """Whether a profiled step is spread alike by both; raises what ``spread_of`` raises."""
    return spread_in_words(one) == spread_in_words(other)


def spread_in_words(parallelism: Parallelism) -> str:
    """Say how a profiled step is spread, such as "8 ranks under FSDP2"."""
    spread = spread_of(parallelism)
    if spread.ranks == 1:
        return "one rank"
    if spread.is_replicated:
        views = ", gradients being views" if parallelism.gradient_as_bucket_view else ""
        return f"{spread.ranks} ranks under DistributedDataParallel{views}"
    replicas = f", {spread.replicas} replicas of {spread.shards}" if spread.replicas > 1 else ""
    depth = parallelism.prefetch_units
    ahead = f", prefetching {depth} units" if depth else ""
    kept = _KEPT.get(reshard := resharding_of(parallelism), f", resharded to {reshard} ranks")
    return f"{spread.ranks} ranks under FSDP2{replicas}{kept}{ahead}"


def resharding_of(parallelism: Parallelism) -> bool | int:
    """Give what ``fully_shard`` takes as ``reshard_after_forward`` of the units."""
    return parallelism.reshard_ranks or parallelism.reshard_after_forward is not False


def _sharded(parallelism: Parallelism) -> Spread:
    """Fill in the degree that is missing, as Estimate does: shards take the ranks that are left."""
    ranks, shards = parallelism.world_size, parallelism.dp_shard
    replicas = parallelism.dp_replicate or 1
    if ranks is not None and shards is not None:
        replicas = ranks // shards
    elif ranks is not None:
        shards = ranks // replicas
    spread = Spread(shards=shards or 1, replicas=replicas)
    if spread.is_replicated:
        raise _refusal(f"FSDP2 with {spread.replicas} replicas of one shard")
    _check_resharding(parallelism, spread.shards)
    return spread


def _check_resharding(parallelism: Parallelism, shards: int) -> None:
    fewer = parallelism.reshard_ranks
    if fewer is None:
        return
    if parallelism.reshard_after_forward is False:
        raise InvalidRequestError(
            f"units are kept after the forward, and resharded to {fewer} ranks; give one of both",
            field="parallelism.reshard_ranks",
        )
    if not 1 < fewer < shards or shards % fewer:
        raise InvalidRequestError(
            f"units cannot be resharded to {fewer} of {shards} ranks; give a divisor between 1 and "
            f"{shards}, or reshard_after_forward yes or no",
            field="parallelism.reshard_ranks",
        )


def _check_others(parallelism: Parallelism, read: tuple[str, ...]) -> None:
    plain = Parallelism()
    for each in fields(parallelism):
        given = getattr(parallelism, each.name)
        is_one = each.name in ("dp_shard", "tp", "pp", "cp", "ep") and given == 1
        if each.name not in read and given != getattr(plain, each.name) and not is_one:
            raise _refusal(f"{each.name} {given}")


def _refusal(what: str) -> NotSupportedError:
    return NotSupportedError(
        f"parallelism: a profile is not planned for {what}; give one rank, replicas "
        "(--gpus N: DistributedDataParallel, with gradient_as_bucket_view if need be), or FSDP2 "
        "(--gpus N --fsdp, with dp_replicate, reshard_after_forward or prefetch_units)"
    )


def keeps_first_buckets(parallelism: Parallelism, device: str) -> bool:
    """Whether ``DistributedDataParallel`` has its first buckets beside those of the second step.

    One H200 had them (NCCL, torch 2.11). Two ranks of gloo on a CPU free them (read on torch 2.13);
    where the device is not known they count. Gradients that are views have one copy counted.
    """
    return device != "cpu" and not parallelism.gradient_as_bucket_view
