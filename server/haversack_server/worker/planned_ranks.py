"""Whole steps of a plan on a rank of several, measured: what each takes, model states included.

The step is the one that the plan counted, as in a job of one process (``planned``). On the CPU
storages are followed one by one, on a GPU its allocator is asked. Knows no predictions.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from haversack.torch import Workload
from haversack.torch.blocks import inner_module
from haversack.torch.measuring import run_microbatch, run_optimizer
from haversack.torch.optimizers import storage_bytes
from haversack.torch.sharding import own_part
from haversack.verify import VerifyApplied, VerifyPlan
from haversack_server.worker import spread
from haversack_server.worker.memory import LiveStorages
from haversack_server.worker.planned import applied_counts, put_into_effect
from haversack_server.worker.planned_segments import segments_in
from haversack_server.worker.planned_step import optimizer_in_words, same_step
from haversack_server.worker.spread import Way

# gloo's threads may hold what they sent for a moment longer: the least of some steps is the step's.
_STEPS = 3
_UNTIMED = "time: not compared: ranks wait for each other, so that their steps are not timed"


class _Meter(Protocol):
    """Counts what a rank's steps take."""

    def setting_up(self, way: Way) -> Any:
        """Give the context in which the model is spread."""
        ...

    def peak_bytes(self, step: Callable[[], object], standing: Callable[[], int]) -> int:
        """Run a step; give the highest bytes."""
        ...


class _OfCpu:
    """Follows storages, from the buckets that a replica begins with on."""

    def __init__(self) -> None:
        self._live: Any = LiveStorages(resized=True)

    def setting_up(self, way: Way) -> Any:
        """Count buckets, but no shards: these are parameters, and stand."""
        return nullcontext() if way.is_sharded else self._live

    def peak_bytes(self, step: Callable[[], object], standing: Callable[[], int]) -> int:
        """Run a step; what stands before it is added up."""
        stands_bytes = standing()
        self._live.peak_bytes = 0
        with self._live:
            step()
        return stands_bytes + int(self._live.peak_bytes)


class _OfGpu:
    """Asks CUDA's allocator, which counts all that there is."""

    def setting_up(self, way: Way) -> Any:
        """Count nothing yet."""
        return nullcontext()

    def peak_bytes(self, step: Callable[[], object], standing: Callable[[], int]) -> int:
        """Run a step, and wait for it."""
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()


def measured_on_rank(
    workload: Workload, plan: VerifyPlan, way: Way, kind: str, rank: int
) -> VerifyApplied:
    """Measure steps that save everything, then steps of the plan; all ranks do so at once.

    Raises BadWorkloadError for a plan of another model, and whatever the step raises.
    """
    same = same_step(workload, plan.counted)
    meter: _Meter = _OfCpu() if kind == "cpu" else _OfGpu()
    with meter.setting_up(way):
        whole = spread.spread(same.workload, way, kind)
    steps = _Steps(whole, meter)
    steps.settle()
    plain_bytes = steps.peak_bytes()
    model = put_into_effect(workload, plan)
    counts: dict[str, Any] = applied_counts(plan)
    return VerifyApplied(
        **counts,
        segments_in_effect=sum(1 for _ in segments_in(model)),
        predicted_peak_bytes=plan.predicted_peak_bytes,
        measured_peak_bytes=steps.peak_bytes(),
        plain_peak_bytes=plain_bytes,
        peak_at=f"the fullest moment of rank {rank}",
        predicted_extra_ns=plan.predicted_extra_ns,
        method=f"the least of {_STEPS} steps on each rank, the fullest rank's: parameters, "
        f"gradients, inputs and {optimizer_in_words(same.workload, plan.counted)} included",
        not_compared=(
            *(f"peak: not compared: {each}" for each in same.differences),
            _UNTIMED,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Steps:
    """Training steps of a workload that is spread over ranks."""

    workload: Workload
    meter: _Meter

    def settle(self) -> None:
        """Make what a first step makes and later ones keep: buffers, the optimizer's state."""
        self.meter.peak_bytes(lambda: run_microbatch(self.workload), lambda: 0)
        run_optimizer(self.workload)  # its state is not followed, and stands from here on

    def peak_bytes(self) -> int:
        """Run steps, and give the least of their peaks."""
        return min(self.meter.peak_bytes(self._step, self._standing) for _ in range(_STEPS))

    def _step(self) -> None:
        run_microbatch(self.workload)
        run_optimizer(self.workload)

    def _standing(self) -> int:
        """Add up a rank's own parameters and optimizer state, buffers and arguments."""
        model, optimizer = inner_module(self.workload.model), self.workload.optimizer
        state = optimizer.state.values() if optimizer is not None else ()
        return storage_bytes(
            [
                list(map(own_part, model.parameters())),
                list(model.buffers()),
                [list(map(own_part, each.values())) for each in state],
                self.workload.args,
                dict(self.workload.kwargs),
            ]
        )
