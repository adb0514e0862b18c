"""Settings that decide the memory of a run and that the memory model does not know yet.

An answer to them would be false, so there is none: the verdict is UNKNOWN, and says why.
"""

from haversack.parallelism import PipelineSchedule
from haversack.run import Recompute, TrainingRun
from haversack_server.memory.degrees import Degrees

_AXES = {
    "pp": "pipeline stages and their microbatches in flight",
    "cp": "context-parallel attention and its buffers",
    "ep": "expert shards and the imbalance of their tokens",
}


def unmodelled(run: TrainingRun, degrees: Degrees) -> tuple[str, ...]:
    """Name the axes and settings in use that are not modelled yet; none, if () is given."""
    parallelism, training = run.parallelism, run.training
    axes = [
        f"{axis}={getattr(degrees, axis)}: {meaning} are not modelled yet"
        for axis, meaning in _AXES.items()
        if getattr(degrees, axis) > 1
    ]
    in_use = {
        "reshard_after_forward=false": parallelism.reshard_after_forward is False
        and degrees.shards_parameters,
        "pipeline_schedule": parallelism.pipeline_schedule is not PipelineSchedule.UNSPECIFIED,
        "virtual_stages": parallelism.virtual_stages is not None,
        "recompute=selective": training.recompute is Recompute.SELECTIVE,
        "no_sync": bool(training.no_sync),
    }
    settings = [f"{setting}: not modelled yet" for setting, used in in_use.items() if used]
    occasions = [f"{each.name.lower()}: not modelled yet" for each in training.occasions]
    return (*axes, *settings, *occasions)
