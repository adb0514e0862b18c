"""A profiled chain on one rank of ``DistributedDataParallel``: buckets beside whole gradients.

All ranks are alike. Which buckets there are, and when gradients are views of them, is Estimate's
own schedule, laid out in bytes. Knows no options but to raise the first one's peak.
"""

from dataclasses import replace

from haversack.parallelism import Parallelism
from haversack.profile import Profile
from haversack.spread import keeps_first_buckets
from haversack_server.memory.chain import Chain
from haversack_server.memory.degrees import resolve
from haversack_server.memory.moments import Column
from haversack_server.memory.schedule.choose import schedule_of
from haversack_server.memory.schedule.settings import ScheduleSettings
from haversack_server.plan.laid_units import standing_states
from haversack_server.plan.profiled_chain import ProfiledChain
from haversack_server.plan.profiled_types import BYTES

_FIRST_STEP, _LATER_STEP = 1, 2  # as Estimate counts them, with the first buckets in both


def on_one_replica(
    chain: ProfiledChain, profile: Profile, parallelism: Parallelism
) -> ProfiledChain:
    """Give the chain of any rank under ``DistributedDataParallel``.

    Before each forward, buffers are copied into one tensor to be broadcast: that is no more than
    buffers and arguments have, and is freed before the model runs. On a GPU the first buckets stay
    beside those of the second step, as Estimate has it; on a CPU they do not.
    """
    # Gradients of arguments are among those of blocks, and are in no bucket.
    trained_bytes = min(chain.all_gradients, sum(each.parameter_bytes for each in profile.blocks))
    step = _LATER_STEP if keeps_first_buckets(parallelism, profile.device) else _FIRST_STEP
    views, buckets_bytes = _buckets(parallelism, trained_bytes, step)
    first = [
        replace(each, forward_peak_bytes=max(each.forward_peak_bytes, profile.standing_bytes))
        for each in chain.options[0]
    ]
    chain = replace(chain, options=(tuple(first), *chain.options[1:]))
    if not views:
        return replace(chain, standing_bytes=chain.standing_bytes + buckets_bytes)
    of_arguments = chain.all_gradients - trained_bytes
    return replace(
        chain,
        forward_gradients=(trained_bytes,) * len(chain.names),
        gradients_before=tuple(
            trained_bytes + min(of_arguments, before) for before in chain.gradients_before
        ),
        beside="buckets, which gradients are views of",
    )


def said(parallelism: Parallelism, device: str, gradient_bytes: str) -> tuple[str, ...]:
    """Say which buckets are counted, and which were seen elsewhere; the bytes are written out."""
    if parallelism.gradient_as_bucket_view:
        counted = "gradients are views of the buckets, which stand from the start"
    else:
        counted = f"buckets of {gradient_bytes} stand beside the gradients"
    anew = "buckets are made anew in the second step; a GPU (H200, NCCL) had the first ones beside"
    if keeps_first_buckets(parallelism, device):
        second = f"{anew} them then: {gradient_bytes} more are counted"
    else:
        second = f"{anew} them then: keep {gradient_bytes} more free there, or measure"
    return (
        f"ranks: all {resolve(parallelism).world_size} are alike; each has the whole states",
        f"DistributedDataParallel: {counted}",
        second,
    )


def _buckets(parallelism: Parallelism, gradient_bytes: int, step: int) -> tuple[bool, int]:
    """Give whether gradients are views of the buckets, and the bytes of these in a step."""
    schedule = schedule_of(
        Chain(
            blocks=(),
            states=standing_states(gradient_bytes),
            recipe=BYTES,
            degrees=resolve(parallelism),
            accumulation=1,
            schedule=ScheduleSettings(
                gradient_as_bucket_view=bool(parallelism.gradient_as_bucket_view)
            ),
        )
    )
    standing = schedule.standing(step)
    views = Column.GRADIENTS in standing
    return views, standing[Column.GRADIENTS if views else Column.REDUCE]
