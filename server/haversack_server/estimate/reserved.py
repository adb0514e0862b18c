"""Reserved bytes by replaying a run's allocations, where a request asks for it.

In place of the kernel profile's factor, which is one figure for all runs. Only what was measured is
replayed: one rank that holds everything whole, Hugging Face models in eager PyTorch, one microbatch
in a step. What it missed of measured runs stands in ``benchmarks/estimate-notes.md``.
"""

from collections.abc import Mapping
from dataclasses import replace

from haversack.estimate import EstimateRequest, Peak
from haversack.questions import EstimateQuestion
from haversack.run import Interval
from haversack_server.estimate.asked import asked
from haversack_server.estimate.rank_peaks import RankPeak
from haversack_server.memory.kernel_profile import DEFAULT
from haversack_server.memory.model_run import ModelRun
from haversack_server.memory.replay import RECOMPUTE, replay
from haversack_server.memory.stopping import Stop

# Measured, H200, torch 2.11, 2026-11-29: the most that a run reserved above its replay was 10 %,
# a recomputed Mixtral; the benchmark of Estimate, section "reserved", has every run.
HIGH_PERMILLE = 1100
REPLAYED = (
    "reserved bytes: three steps replayed through a model of PyTorch's caching allocator; the high "
    "end is 10 % above, the most that measured runs reserved beyond it; searches, advice and "
    "variations keep the factor"
)
_OPTIONS = ("save", RECOMPUTE)


def with_replay(
    request: EstimateRequest, run: ModelRun, classes: tuple[RankPeak, ...], stop: Stop
) -> tuple[tuple[RankPeak, ...], tuple[str, ...]]:
    """Replay the run of the only rank, if asked; with what is assumed, or why it was not."""
    if EstimateQuestion.ALLOCATOR not in asked(request):
        return classes, ()
    hindered = ", ".join(why for why, so in _hindrances(request, run).items() if so)
    if hindered:
        return classes, (f"reserved bytes: a factor, since no replay was measured for: {hindered}",)
    (only,) = classes
    found = replay(run, run.choice(request.training), stop)
    peak = _peak_with(only.peak, found.reserved_bytes, found.peak_bytes)
    return (replace(only, peak=peak),), (REPLAYED,)


def _hindrances(request: EstimateRequest, run: ModelRun) -> Mapping[str, bool]:
    """Name what was not measured, or has another order of allocations."""
    chain, model = run.chain, run.architecture
    names = {
        block.options[index].name
        for block, index in zip(chain.blocks, run.choice(request.training), strict=True)
    }
    return {
        "several ranks": run.degrees.world_size > 1,
        "units that are gathered": run.degrees.shards_parameters,
        f"kernel profile {run.profile.name}": run.profile.name != DEFAULT,
        "encoder with a decoder": model.encoder_layers > 0,
        "accumulation": chain.accumulation > 1,
        "autocast": run.shape.product_bytes > 0,
        "frozen weights": request.training.finetuning is not None,
        "offload": bool(chain.offload),
        "optimizer in backward": chain.schedule.updates_in_backward,
        "state of this optimizer": chain.recipe.moments is None,
        "partial recomputation": bool(names - set(_OPTIONS)),
    }


def _peak_with(peak: Peak, reserved_bytes: int, allocated_bytes: int) -> Peak:
    """Scale allocated bytes as the replay's own are; its peak may differ from ours a little."""

    def scaled(size_bytes: int, permille: int = 1000) -> int:
        return -(-size_bytes * reserved_bytes * permille // (allocated_bytes * 1000))

    reserved = Interval(
        low_bytes=peak.reserved.low_bytes,
        expected_bytes=scaled(peak.allocated.expected_bytes),
        high_bytes=scaled(peak.allocated.high_bytes, HIGH_PERMILLE),
    )
    outside = peak.outside
    device = Interval(
        low_bytes=reserved.low_bytes + outside.low_bytes,
        expected_bytes=reserved.expected_bytes + outside.expected_bytes,
        high_bytes=reserved.high_bytes + outside.high_bytes,
    )
    return replace(peak, reserved=reserved, device=device)
