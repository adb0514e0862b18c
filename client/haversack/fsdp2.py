"""The one parallelism of a profiled step: FSDP2 over all ranks, each with inputs of its own."""

from dataclasses import replace

from haversack.errors import NotSupportedError
from haversack.parallelism import Parallelism, Sharding

_READ = ("world_size", "dp_shard", "sharding", "reshard_after_forward", "prefetch_units")


def fsdp2_ranks(parallelism: Parallelism) -> int:
    """Give the ranks that states are sharded over; 1 where nothing is said of any.

    Raises NotSupportedError for what is neither one rank nor FSDP2 over all of them.
    """
    others = replace(parallelism, **{name: getattr(Parallelism(), name) for name in _READ})
    ranks = parallelism.world_size or parallelism.dp_shard or 1
    divides = parallelism.sharding is Sharding.FSDP2 and parallelism.dp_shard in (None, ranks)
    if others != Parallelism() or (ranks > 1 and not divides):
        raise NotSupportedError(
            "parallelism: a profile is planned for one rank, or for FSDP2 over all ranks; give "
            "sharding FSDP2 with world_size or dp_shard (--gpus N --fsdp), and "
            "reshard_after_forward or prefetch_units if need be"
        )
    return ranks


def is_same_step(one: Parallelism, other: Parallelism) -> bool:
    """Whether a profiled step is spread alike by both; raises what ``fsdp2_ranks`` raises."""
    return spread_in_words(one) == spread_in_words(other)


def spread_in_words(parallelism: Parallelism) -> str:
    """Say how a profiled step is spread, such as "8 ranks under FSDP2"."""
    ranks = fsdp2_ranks(parallelism)
    if ranks == 1:
        return "one rank"
    kept = ", not resharded after the forward" if parallelism.reshard_after_forward is False else ""
    depth = parallelism.prefetch_units
    return f"{ranks} ranks under FSDP2{kept}" + (f", prefetching {depth} units" if depth else "")
