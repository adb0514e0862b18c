"""Puts a report together: from the outcomes of a job's runs, or from the reason why there are none.

No torch, no processes.
"""

import signal
from collections.abc import Sequence
from dataclasses import replace

from haversack.verify import (
    Facet,
    FacetResult,
    FacetValue,
    FailureReason,
    FirstDifference,
    VerifyApplied,
    VerifyEnvironment,
    VerifyFailure,
    VerifyMemory,
    VerifyReport,
    VerifyRequest,
    VerifySchedule,
    VerifyVerdict,
)
from haversack_server.verify.evidence import assumptions, evidence
from haversack_server.verify.findings import (
    Outcomes,
    findings,
    memory,
    recompute_counts,
    time,
)
from haversack_server.verify.hints import cause_hint
from haversack_server.verify.outcome import Outcome
from haversack_server.verify.places import first_difference, with_state
from haversack_server.verify.predictions import compared_with_plan
from haversack_server.verify.verdict import judge


def blank(request: VerifyRequest, job_id: str) -> VerifyReport:
    """Begin a report with what the request says."""
    workload = request.workload
    return VerifyReport(
        job_id=job_id,
        workload=workload.name or workload.entry_point,
        args_json=workload.args_json,
        seed=request.seed,
        schedule=request.schedule or VerifySchedule.ONE_MICROBATCH,
    )


def failed(report: VerifyReport, failure: VerifyFailure) -> VerifyReport:
    """End a report for which there is no comparison."""
    return replace(report, verdict=VerifyVerdict.FAILED, failure=failure)


def compared(
    report: VerifyReport,
    request: VerifyRequest,
    runs: Outcomes,
    *,
    environment: VerifyEnvironment,
    pinned: Sequence[str],
) -> VerifyReport:
    """Give the report of runs that can be compared."""
    applied = _applied(request, runs)
    found = findings(runs, applied)
    changes = runs.watched.changes if runs.watched else ()
    place = with_state(first_difference(runs, found), changes)
    found = _with_hints(found, place)
    judgement = judge(found, waivers=request.waivers, strict=request.strict)
    raised = runs.plain.raised or runs.checkpointed.raised
    return replace(
        report,
        verdict=judgement.verdict,
        warnings=judgement.warnings,
        facets=judgement.facets,
        waivers=judgement.waivers,
        recompute_counts=recompute_counts(runs),
        random_sources=runs.watched.sources if runs.watched else (),
        saved_values=runs.watched.saved if runs.watched else (),
        state_changes=changes,
        first_difference=place,
        memory=None if raised else _memory(request, runs, environment.device),
        time=None if raised else time(runs),
        environment=environment,
        pinned=tuple(pinned),
        evidence=evidence(runs, judgement.facets, report.schedule, request),
        loss=runs.plain.loss,
        assumptions=(*assumptions(runs, request), *unmeasured(runs)),
        applied=applied,
    )


def _applied(request: VerifyRequest, runs: Outcomes) -> VerifyApplied | None:
    """Hold the measured steps of a plan against what it predicts; None where there are none."""
    if request.plan is None or runs.planned is None or runs.planned.applied is None:
        return None
    return compared_with_plan(runs.planned.applied, request.plan.actions, recompute_counts(runs))


def unmeasured(runs: Outcomes) -> tuple[str, ...]:
    """Say why no step of a plan was measured; nothing where one was, or was not asked for."""
    if runs.planned is None or runs.planned.raised is None:
        return ()
    return (f"No step of the plan was measured, since one raised: {runs.planned.raised}",)


def _with_hints(found: Sequence[FacetResult], place: FirstDifference | None) -> list[FacetResult]:
    """Cure gradients and exceptions by the class of the first difference, where it is known."""
    hint = cause_hint(place.cause) if place else ""
    return [replace(each, fix_hint=hint) if hint and _is_replayed(each) else each for each in found]


def _is_replayed(found: FacetResult) -> bool:
    """Whether a wrong replay is what makes a facet what it is."""
    if found.value is FacetValue.RAISED_ONLY_CHECKPOINTED:
        return True
    gradients = (Facet.INPUT_GRADIENTS, Facet.PARAMETER_GRADIENTS)
    return found.facet in gradients and found.value is FacetValue.DIFFERENT


def _memory(request: VerifyRequest, runs: Outcomes, device: str) -> VerifyMemory | None:
    measured = memory(runs)
    if measured is None:
        return None
    how = "storages that the operations of a step make, followed one by one"
    if device != "cpu":
        how = (
            "bytes of PyTorch's allocator above what it had before the step, when it had cuBLAS's "
            "workspaces already"
        )
    return replace(
        measured,
        predicted_peak_bytes=request.plan.predicted_peak_bytes if request.plan else None,
        method=f"{how}; parameters, buffers, inputs, and what a kernel on the CPU takes and gives "
        "back inside itself are not counted",
    )


def failure_of(outcome: Outcome) -> VerifyFailure | None:
    """Say why a run leaves nothing to compare; None where it does."""
    if outcome.is_lost:
        return VerifyFailure(
            reason=FailureReason.WORKER_LOST,
            message=f"The process of the {outcome.stage} run {ended(outcome.exit_status)} before "
            "it had a result",
            exit_status=outcome.exit_status,
            stage=outcome.stage,
        )
    if outcome.bad_workload:
        return VerifyFailure(
            reason=FailureReason.BAD_WORKLOAD, message=outcome.bad_workload, stage=outcome.stage
        )
    if outcome.raised and outcome.raised.out_of_memory:
        return VerifyFailure(
            reason=FailureReason.OUT_OF_MEMORY,
            message=f"The {outcome.stage} run asked for more memory than there is, in "
            f"{outcome.raised.part}: {outcome.raised}",
            stage=outcome.stage,
        )
    if outcome.raised and outcome.raised.device_fault:
        return VerifyFailure(
            reason=FailureReason.DEVICE_FAULT,
            message=f"The device failed in the {outcome.stage} run, in {outcome.raised.part}: "
            f"{outcome.raised}",
            stage=outcome.stage,
        )
    return None


def without_comparison(runs: Outcomes) -> VerifyFailure | None:
    """Say why runs that ended have nothing to compare; None where they do."""
    return raised_in_both(runs) or _never_entered(runs)


def _never_entered(runs: Outcomes) -> VerifyFailure | None:
    if runs.plain.raised or runs.checkpointed.raised or runs.checkpointed.regions:
        return None
    named = ", ".join(runs.plain.wrapped[:3])
    return VerifyFailure(
        reason=FailureReason.BAD_WORKLOAD,
        message=f"The step calls the forward of no region, so that nothing was recomputed: {named} "
        "may be a container, or be called by another method; name modules whose forward the "
        "model calls",
        stage=runs.checkpointed.stage,
    )


def raised_in_both(runs: Outcomes) -> VerifyFailure | None:
    """Say that the workload raises with and without checkpointing; None where it does not."""
    plain = runs.plain.raised
    if plain is None or runs.checkpointed.raised is None:
        return None
    return VerifyFailure(
        reason=FailureReason.WORKLOAD_RAISED,
        message=f"The workload raises without activation checkpointing too, in {plain.part}: "
        f"{plain}",
        stage=runs.plain.stage,
    )


def ended(status: int | None) -> str:
    """Say how a process ended: its exit code, or the signal that ended it."""
    if status is None:
        return "ended, and the workload took its exit status away,"
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    return f"was ended by signal {-status} ({name})"
