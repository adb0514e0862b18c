"""A plan in a job: put into effect for its runs, and a whole step of it measured.

Regions and policies are those of ``haversack.torch.apply``: what is verified is what a training
script gets.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from haversack.errors import HaversackError
from haversack.plan import Plan
from haversack.torch import Workload, apply, measure
from haversack.torch.applying import Applied
from haversack.torch.measured import Measured
from haversack.verify import VerifyApplied, VerifyPlan
from haversack_server.verify.outcome import Outcome, Raised
from haversack_server.worker.errors import BadWorkloadError, text_of
from haversack_server.worker.fork import print_fault
from haversack_server.worker.planned_segments import segments_in
from haversack_server.worker.planned_step import (
    SameStep,
    after_steps,
    device_in_words,
    optimizer_in_words,
    same_step,
    untimed,
)

_STEPS = 3


def put_into_effect(workload: Workload, plan: VerifyPlan) -> nn.Module:
    """Run the blocks of the model as the plan says, until the process ends; gives the model.

    Raises BadWorkloadError for a plan of another model, or one that cannot be applied.
    """
    model, _ = _put(workload, plan)
    return model


def check_fits(workload: Workload, plan: VerifyPlan) -> None:
    """Raise BadWorkloadError for a plan that is not of this model, before a step is run for it."""
    _, applied = _put(workload, plan)
    applied.remove()


def _put(workload: Workload, plan: VerifyPlan) -> tuple[nn.Module, Applied]:
    model = workload.model
    if not isinstance(model, nn.Module):
        raise BadWorkloadError(f"a plan names modules, but the model is a {type(model).__name__}")
    try:
        return model, apply(
            model, Plan(actions=plan.actions, model_fingerprint=plan.model_fingerprint)
        )
    except HaversackError as refused:
        raise BadWorkloadError(f"the plan cannot be applied: {refused}") from refused


def measured(workload: Workload, plan: VerifyPlan, stage: str) -> Outcome:
    """Measure steps that save everything, then steps of the plan, with the optimizer it counts."""
    return unless_raised(stage, lambda: _planned(workload, plan))


def unless_raised(stage: str, measure_steps: Callable[[], VerifyApplied]) -> Outcome:
    """Give the measured steps, or what was raised there.

    What the workload's code raises in a second step, say, or that memory runs out, keeps it from
    being measured, and is no verdict: it is in the outcome.
    """
    try:
        return Outcome(stage=stage, applied=measure_steps())
    except Exception as error:  # whatever user code raises
        print_fault()
        message = text_of(error)[:500]
        raised = Raised(part="a measured step", kind=type(error).__name__, message=message)
        return Outcome(stage=stage, raised=raised)


def _planned(workload: Workload, plan: VerifyPlan) -> VerifyApplied:
    same = same_step(workload, plan.counted)
    plain = _measured(same.workload, plan)
    model = put_into_effect(workload, plan)
    applied = _applied(plan, same, plain, _measured(same.workload, plan))
    return replace(applied, segments_in_effect=sum(1 for _ in segments_in(model)))


def _measured(workload: Workload, plan: VerifyPlan) -> Measured:
    return measure(workload, plan=Plan(actions=plan.actions), steps=_STEPS)


def applied_counts(plan: VerifyPlan) -> dict[str, int]:
    """Count a plan's blocks by what it does with them, by the names of VerifyApplied."""
    options = [action.option for action in plan.actions]
    saved, recomputed = options.count("save"), options.count("recompute")
    return {
        "saved_count": saved,
        "recomputed_count": recomputed,
        "selective_count": len(options) - saved - recomputed,
        "segment_count": len({action.segment for action in plan.actions} - {0}),
    }


def _applied(plan: VerifyPlan, same: SameStep, plain: Measured, planned: Measured) -> VerifyApplied:
    differences = (*same.differences, *after_steps(same.workload, plan.counted))
    counts: dict[str, Any] = applied_counts(plan)
    return VerifyApplied(
        **counts,
        predicted_peak_bytes=plan.predicted_peak_bytes,
        measured_peak_bytes=planned.peak_bytes,
        plain_peak_bytes=plain.peak_bytes,
        peak_at=planned.peak_at.moment,
        predicted_extra_ns=plan.predicted_extra_ns,
        measured_extra_ns=planned.step_ns - plain.step_ns,
        plain_ns=plain.step_ns,
        method=f"haversack.torch.measure on {planned.device}, the median of {_STEPS} steps: "
        f"parameters, gradients, inputs and {optimizer_in_words(same.workload, plan.counted)} "
        f"included{device_in_words(plan.counted, planned.device)}",
        not_compared=(
            *(f"peak: not compared: {each}" for each in differences),
            *(f"time: not compared: {each}" for each in untimed(plan.counted, planned.device)),
        ),
    )
