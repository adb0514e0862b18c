"""The buffers of one FSDP2 unit, in bytes."""

from dataclasses import dataclass

from haversack.parallelism import Sharding
from haversack_server.memory.chain import Chain
from haversack_server.memory.moments import Column
from haversack_server.memory.schedule.span import Span
from haversack_server.memory.schedule.wrapping import WrapUnit


@dataclass(frozen=True, slots=True)
class Buffers:
    """What ``fully_shard`` allocates for one unit.

    ``gathered`` are its parameters as they are computed with, padding included; ``copy`` is the
    all-gather's own output and ``cast`` its input where shards have another type, or come from the
    host. ``kept`` stays
    after forward where the unit is resharded to fewer ranks.
    """

    gathered: int
    copy: int
    cast: int
    kept: int
    gradients: int
    unreduced: int
    reduce_input: int
    reduce_output: int
    shard_gradients: int


def buffers(chain: Chain, unit: WrapUnit) -> Buffers:
    """Size the buffers of a unit; on one rank nothing is gathered, and parameters are copied."""
    recipe, several = chain.recipe, chain.degrees.shard_ranks > 1
    casts = several and recipe.compute != recipe.parameter
    gathered = unit.whole * recipe.compute
    arriving = unit.shard * recipe.parameter if chain.offload.parameters else 0
    ranks = chain.schedule.reshard_ranks
    # The gradient of FSDP1's flat parameter has room for those that are frozen.
    flat = chain.degrees.sharding is Sharding.FSDP1
    whole, shard = (unit.whole, unit.shard) if flat else (unit.trained_whole, unit.trained_shard)
    return Buffers(
        gathered=gathered,
        copy=gathered if several else 0,
        cast=arriving + (unit.shard * recipe.compute if casts else 0),
        kept=gathered // ranks if ranks else 0,
        gradients=unit.elements * recipe.compute,
        unreduced=unit.elements * recipe.reduce,
        reduce_input=whole * recipe.reduce,
        reduce_output=shard * recipe.reduce,
        shard_gradients=shard * recipe.gradient,
    )


def carried(chain: Chain, span: Span) -> dict[Column, int]:
    """Give the gradients that earlier microbatches left: sharded, or whole where not reduced."""
    recipe, there = chain.recipe, chain.blocks[span.gradients_from :]
    if span.unreduced:
        whole = sum(block.unit.elements for block in there)
        return {Column.UNSHARDED_GRADIENTS: whole * recipe.reduce}
    if not chain.keeps_gradients:
        return {}
    return {Column.GRADIENTS: sum(block.unit.trained_shard for block in there) * recipe.gradient}
