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
_LEFT_OUT: dict[str, object] = {
    "sequence_parallel": False,
    "offload_optimizer": False,
    "offload_parameters": False,
}
_LEFT_OUT |= dict.fromkeys(("dp_shard", "tp", "pp", "cp", "ep"), 1)
_OF_FSDP2 = "of FSDP2; give that on several ranks too (--gpus N --fsdp)"
_OF_BUCKETS = (
    "of DistributedDataParallel's buckets; give several ranks that shard nothing (--gpus N)"
)
_WHOSE: dict[str, str] = {
    "reshard_after_forward": _OF_FSDP2,
    "reshard_ranks": _OF_FSDP2,
    "prefetch_units": _OF_FSDP2,
    "gradient_as_bucket_view": _OF_BUCKETS,
}
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

    Raises NotSupportedError for what a profile is not planned for, InvalidRequestError for a
    setting of ranks that are not there; both name the field.
    """
    if parallelism.sharding is Sharding.FSDP2:
        _check_others(parallelism, _OF_SHARDS)
        return _sharded(parallelism)
    if parallelism.sharding not in (Sharding.UNSPECIFIED, Sharding.REPLICATED):
        raise _refusal("sharding", parallelism.sharding.name)
    _check_others(parallelism, _OF_REPLICAS)
    ranks = parallelism.world_size or parallelism.dp_replicate or 1
    if parallelism.dp_replicate not in (None, ranks):
        what = f"{parallelism.dp_replicate} replicas on {ranks} ranks that shard nothing"
        raise _refusal("dp_replicate", what)
    if ranks == 1 and parallelism.gradient_as_bucket_view:
        raise _of_others("gradient_as_bucket_view")
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
    if ranks is None and shards is None and parallelism.dp_replicate is None:
        raise InvalidRequestError(
            "FSDP2 shards over ranks, and nobody says how many there are; give their number too "
            "(--gpus N), or leave it out",
            field="parallelism.sharding",
        )
    replicas = parallelism.dp_replicate or 1
    if ranks is not None and shards is not None:
        replicas = ranks // shards
    elif ranks is not None:
        shards = ranks // replicas
    spread = Spread(shards=shards or 1, replicas=replicas)
    if spread.is_replicated:
        raise _refusal("dp_replicate", f"FSDP2 with {spread.replicas} replicas of one shard")
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
    """Refuse what is given beside the fields that are read, unless it changes nothing."""
    plain = Parallelism()
    for each in fields(parallelism):
        given = getattr(parallelism, each.name)
        is_nothing = given in (getattr(plain, each.name), _LEFT_OUT.get(each.name))
        if each.name in read or is_nothing:
            continue
        if each.name in _WHOSE:
            raise _of_others(each.name)
        raise _refusal(each.name, f"{each.name} {given}")


def _of_others(name: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"it is a setting {_WHOSE[name]}, or leave it out", field=f"parallelism.{name}"
    )


def _refusal(name: str, what: str) -> NotSupportedError:
    return NotSupportedError(
        f"parallelism.{name}: a profile is not planned for {what}; give one rank, replicas "
        "(--gpus N: DistributedDataParallel), or FSDP2 (--gpus N --fsdp, with dp_replicate below N "
        "if need be)"
    )


def keeps_first_buckets(parallelism: Parallelism, device: str) -> bool:
    """Whether ``DistributedDataParallel`` has its first buckets beside those of the second step.

    One H200 had them (NCCL, torch 2.11). Two ranks of gloo on a CPU free them (read on torch 2.13);
    where the device is not known they count. Gradients that are views have one copy counted.
    """
    return device != "cpu" and not parallelism.gradient_as_bucket_view
