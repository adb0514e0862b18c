"""Changes to a run that may lower its peak, each with its cost in words.

Which of them helps, and by how much, the caller finds by laying the changed run onto the timeline.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from haversack.parallelism import MOST_RANKS, Sharding
from haversack.run import Attention, Recompute, TrainingRun
from haversack_server.memory.degrees import resolve

Run = TypeVar("Run", bound=TrainingRun)


@dataclass(frozen=True, slots=True)
class Change(Generic[Run]):
    """A changed run, the change in words, and its cost in words."""

    words: str
    cost: str
    run: Run


def changes(run: Run) -> Iterator[Change[Run]]:
    """Yield the changes that are open to a run, in no order."""
    if run.training.recompute is not Recompute.FULL:
        full = replace(run.training, recompute=Recompute.FULL, actions=())
        cost = "each layer's forward runs twice; haversack plan recomputes only what is needed"
        yield Change("recompute every layer", cost, replace(run, training=full))
    yield from smaller_steps(run)
    yield from more_sharding(run)


def smaller_steps(run: Run) -> Iterator[Change[Run]]:
    """Yield fewer tokens at a time, and attention that keeps less of them."""
    training = run.training
    microbatch = (training.microbatch or 1) // 2
    if microbatch:
        half = replace(training, microbatch=microbatch)
        cost = "twice the accumulation for the same global batch; less work per kernel"
        yield Change(f"microbatch {microbatch}", cost, replace(run, training=half))
    elif training.seq and training.seq > 1:
        half = replace(training, seq=training.seq // 2)
        cost = "shorter sequences are another training run"
        yield Change(f"seq {training.seq // 2}", cost, replace(run, training=half))
    if training.attention is Attention.EAGER:
        flash = replace(training, attention=Attention.FLASH)
        cost = "sums in another order: results differ in their last bits"
        yield Change("a flash attention kernel", cost, replace(run, training=flash))


def more_sharding(run: Run) -> Iterator[Change[Run]]:
    """Yield more of the model sharded, over the same ranks or over more."""
    parallelism = run.parallelism
    degrees = resolve(parallelism)
    if not degrees.shards_parameters and degrees.dp_replicate * degrees.dp_shard > 1:
        sharded = replace(parallelism, sharding=Sharding.ZERO_3, dp_shard=None, dp_replicate=None)
        cost = "parameters are gathered in forward and in backward"
        yield Change("shard parameters too (ZeRO 3)", cost, replace(run, parallelism=sharded))
    if parallelism.dp_shard is not None or parallelism.dp_replicate is not None:
        return
    if 2 * degrees.world_size > MOST_RANKS:
        return
    twice = replace(parallelism, world_size=degrees.world_size * 2)
    if degrees.shards_optimizer:
        more = replace(run, parallelism=twice)
        yield Change(f"{twice.world_size} GPUs", "twice the devices", more)
    if parallelism.tp is None:
        split = replace(run, parallelism=replace(twice, tp=2))
        cost = "twice the devices, and collectives inside every layer"
        yield Change("tp=2 on twice the GPUs", cost, split)
