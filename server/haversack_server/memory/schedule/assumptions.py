"""What was assumed of a step and of its sharding schedule, in sentences."""

from haversack.parallelism import Sharding, WrapPolicy
from haversack.run import TrainingRun
from haversack_server.memory.chain import Chain
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.schedule.settings import (
    MAX_LIVE_ELEMENTS,
    MAX_REUSE_ELEMENTS,
    PREFETCH_ELEMENTS,
    REDUCE_BUCKET_ELEMENTS,
)

_DEEPSPEED = (Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3)


def step_assumptions(run: TrainingRun, degrees: Degrees) -> tuple[str, ...]:
    """Say what was filled in of the step: its microbatches, and the buckets of ZeRO."""
    made = []
    if run.training.accumulation is None:
        made.append("accumulation: one microbatch in an optimizer step")
    elif run.training.accumulation > 1 and degrees.shards_gradients and not run.training.no_sync:
        made.append("gradients are reduced in every microbatch, never kept whole (no_sync)")
    bucketed = degrees.sharding in _DEEPSPEED and degrees.shard_ranks > 1
    bucketed &= not (run.units and degrees.shards_parameters)  # idealised, without buckets
    if bucketed and run.parallelism.reduce_bucket_elements is None:
        made.append(f"reduce bucket: {REDUCE_BUCKET_ELEMENTS:,} elements, DeepSpeed's default")
    return tuple(made)


def schedule_assumptions(chain: Chain, run: TrainingRun, tied: bool) -> tuple[str, ...]:
    """Say how units are wrapped, gathered and freed, and what the caller keeps."""
    made = ["gradients are freed at the end of a step (set_to_none)"]
    if chain.gradients_stand:
        made = ["gradients have one buffer from the start to the end of the job"]
    if any(block.held_by_caller_bytes for block in chain.blocks):
        made.append("the caller keeps the model's output (its logits) until the step ends")
    if not chain.degrees.shards_parameters:
        return tuple(made)
    if chain.degrees.sharding is Sharding.ZERO_3:
        made += _zero_3(run)
    else:
        made += _units(chain, run)
        if tied:
            made.append("the tied embedding and head are one unit, gathered for the whole step")
    made.append("the model is created sharded: no rank ever holds all of it")
    return tuple(made)


def _units(chain: Chain, run: TrainingRun) -> list[str]:
    """How FSDP's units are cut and when they are gathered and freed."""
    parallelism, made = run.parallelism, []
    if parallelism.wrap is WrapPolicy.UNSPECIFIED:
        made.append("units: embedding, each layer, head")
    if parallelism.reshard_after_forward is None and parallelism.reshard_ranks is None:
        made.append("units are freed after forward, all but the root unit (reshard_after_forward)")
    if parallelism.prefetch_units is None and chain.degrees.sharding is Sharding.FSDP2:
        made.append("prefetch: FSDP2's own, one unit ahead in backward and none in forward")
    if parallelism.backward_prefetch == 0 and chain.degrees.sharding is Sharding.FSDP1:
        made.append("prefetch: FSDP1's BACKWARD_PRE, one unit ahead in backward")
    return made


def _zero_3(run: TrainingRun) -> list[str]:
    given = run.parallelism
    defaults = {
        f"max_live_elements {MAX_LIVE_ELEMENTS:,}": given.max_live_elements,
        f"max_reuse_elements {MAX_REUSE_ELEMENTS:,}": given.max_reuse_elements,
        f"prefetch_elements {PREFETCH_ELEMENTS:,}": given.prefetch_elements,
    }
    assumed = [words for words, value in defaults.items() if value is None]
    return [f"DeepSpeed's defaults of stage 3: {', '.join(assumed)}"] if assumed else []
