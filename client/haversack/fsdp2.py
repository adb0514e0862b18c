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
            "sharding FSDP2 with world_size or dp_shard, and reshard_after_forward or "
            "prefetch_units if need be"
        )
    return ranks
