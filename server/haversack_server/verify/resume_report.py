"""The report of a resume job, from what its ranks saw. No torch, no processes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from haversack.verify import (
    FacetResult,
    FacetValue,
    FailureReason,
    LeftOutState,
    ResumedStep,
    TrainingCheckpoint,
    VerifyEnvironment,
    VerifyEvidence,
    VerifyFailure,
    VerifyReport,
    VerifyRequest,
    VerifyResumed,
    VerifyVerdict,
)
from haversack_server.verify.comparison import MOST_NAMES
from haversack_server.verify.resumable import Resume
from haversack_server.verify.resume_findings import left_out_states, resume_findings
from haversack_server.verify.resume_outcome import ResumeRank, ResumeRuns, first_raised
from haversack_server.verify.shardable import SHARDING_WORDS
from haversack_server.verify.verdict import judge


def failure_of(stage: str, ranks: Sequence[ResumeRank], *, decides: bool) -> VerifyFailure | None:
    """Say why a run leaves nothing to compare; None where it does.

    An exception ``decides`` so where no comparison needs the run: the resumed one is compared.
    """
    for each in ranks:
        if each.unreachable:
            return _failure(FailureReason.RANK_LOST, stage, each.unreachable)
        if each.bad_workload:
            return _failure(FailureReason.BAD_WORKLOAD, stage, each.bad_workload)
    found = first_raised(tuple(ranks))
    if found is None or found.raised is None:
        return None
    raised = found.raised
    said = f"in {raised.part} on rank {found.rank} of {len(ranks)}: {raised}"
    if raised.out_of_memory:
        message = f"The {stage} run asked for more memory than there is, {said}"
        return _failure(FailureReason.OUT_OF_MEMORY, stage, message)
    if not decides:
        return None
    message = f"The training raises in the {stage} run, {said}"
    return _failure(FailureReason.WORKLOAD_RAISED, stage, message)


def _failure(reason: FailureReason, stage: str, message: str) -> VerifyFailure:
    return VerifyFailure(reason=reason, stage=stage, message=message)


def resumed(
    report: VerifyReport,
    request: VerifyRequest,
    resume: Resume,
    runs: ResumeRuns,
    *,
    environment: VerifyEnvironment,
) -> VerifyReport:
    """Give the report of runs that can be compared."""
    found = resume_findings(runs, resume)
    judgement = judge(found, waivers=request.waivers, strict=request.strict)
    what = _resumed(resume, runs)
    return replace(
        report,
        verdict=judgement.verdict,
        warnings=(*judgement.warnings, *_changed_by_saving(runs)),
        facets=judgement.facets,
        waivers=judgement.waivers,
        environment=environment,
        pinned=_pinned(request),
        evidence=VerifyEvidence(
            proves=tuple(_proves(judgement.verdict, judgement.facets, resume)),
            does_not_prove=(*_does_not_prove(runs), *_not_missed(what.left_out)),
        ),
        assumptions=tuple(_assumptions(resume)),
        resumed=what,
    )


def _changed_by_saving(runs: ResumeRuns) -> Iterator[str]:
    """Say where the run that saves is another one afterwards."""
    changed = [f"{row.name} on rank {each.rank}" for each in runs.saved for row in each.rows]
    if changed:
        yield (
            f"Saving changes the run itself, which is another one if it goes on: {len(changed)} "
            f"parts of its state, first {changed[0]}"
        )


def _resumed(resume: Resume, runs: ResumeRuns) -> VerifyResumed:
    first, own = runs.uninterrupted[0].losses, runs.resumed[0].losses
    return VerifyResumed(
        saved_size=resume.saved_size,
        resumed_size=resume.resumed_size,
        saved_as=resume.saved_as,
        steps_before=resume.steps_before,
        steps_after=resume.steps_after,
        checkpoint_bytes=runs.saved[0].checkpoint_bytes,
        kept=runs.saved[0].kept[:MOST_NAMES],
        missing=tuple(_missing(runs.resumed))[:MOST_NAMES],
        steps=tuple(
            ResumedStep(
                step=resume.steps_before + place + 1,
                uninterrupted_loss=loss,
                resumed_loss=own[place] if place < len(own) else None,
            )
            for place, loss in enumerate(first)
        ),
        left_out=tuple(left_out_states(runs, resume)),
    )


def _missing(ranks: Sequence[ResumeRank]) -> Iterator[str]:
    """Name what the files do not hold, with the ranks that asked in vain where others did not."""
    for name in dict.fromkeys(name for each in ranks for name in each.missing):
        asked = [str(each.rank) for each in ranks if name in each.missing]
        noun = "rank" if len(asked) == 1 else "ranks"
        yield name if len(asked) == len(ranks) else f"{name} of {noun} {', '.join(asked)}"


def _pinned(request: VerifyRequest) -> tuple[str, ...]:
    switch = "on" if request.deterministic_algorithms else "off"
    return (
        "Every rank of every run begins with what the factory made: the same weights and data",
        f"Rank r has seed {request.seed} + r of torch, python and numpy, set right before the "
        "first step, or before the state is read",
        f"{request.threads or 1} thread(s) for operators; torch.use_deterministic_algorithms is "
        f"{switch}",
    )


def _assumptions(resume: Resume) -> Iterator[str]:
    form = "whole tensors by rank 0"
    if resume.saved_as is TrainingCheckpoint.SHARDED:
        form = "shards by every rank"
    yield (
        f"What was saved is a training checkpoint on disk ({form}, torch.distributed.checkpoint); "
        "activation checkpoints of the model were left as they are"
    )
    yield "Compared is what ranks hold, whatever save and restore of the training say"
    if not resume.same_ranks:
        yield (
            f"The noise of the next steps is how far {resume.resumed_size} ranks that were not "
            f"stopped are from {resume.saved_size}; samples of a step are compared as one global "
            "batch, losses as the mean over ranks"
        )


def _proves(verdict: VerifyVerdict, facets: Sequence[FacetResult], resume: Resume) -> Iterator[str]:
    different = [each.facet for each in facets if each.value is FacetValue.DIFFERENT]
    if different:
        words = ", ".join(facet.name.lower().replace("_", " ") for facet in different)
        yield f"Training that goes on from these files is not the one that was stopped: {words}"
    elif verdict is VerifyVerdict.EQUIVALENT:
        word = SHARDING_WORDS[resume.sharding]
        yield (
            f"For this seed, training by {word} that {resume.saved_size} ranks save after "
            f"{resume.steps_before} steps goes on with {resume.resumed_size} ranks for "
            f"{resume.steps_after} steps as if it had not been stopped, as far as each facet says"
        )


def _does_not_prove(runs: ResumeRuns) -> Iterator[str]:
    yield (
        "Anything about a stop at another step (the end of an epoch, say), about later steps, "
        "other seeds, numbers of ranks and meshes, or versions of torch that read these files"
    )
    yield "Anything about GPUs and NCCL, about several machines, or about a file system that fails"
    yield (
        "Anything about activation checkpoints: a training checkpoint on disk is another thing, "
        "and a job without a resume verifies those"
    )
    if not any(each.draws for each in runs.uninterrupted):
        yield "Much about random states: no step after the stop draws a random number"


def _not_missed(left_out: Sequence[LeftOutState]) -> Iterator[str]:
    """Say which kinds these steps do without."""
    missed = (FacetValue.DIFFERENT, FacetValue.RAISED_ONLY_RESUMED)
    names = [
        each.facet.name.lower().replace("_", " ")
        for each in left_out
        if each.next_steps not in missed
    ]
    if names:
        yield (
            f"That the next steps need {', '.join(names)}: left out, it changes none of them, or "
            "none for certain"
        )
