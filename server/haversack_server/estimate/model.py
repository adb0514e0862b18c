"""A described model: its chain laid onto the timeline, with ledger, verdict and advice."""

from haversack.basis import Basis
from haversack.estimate import Estimate, EstimateRequest, Term, TermCategory
from haversack.questions import EstimateQuestion
from haversack.run import Occasion, Training
from haversack_server.estimate.asked import asked
from haversack_server.estimate.described import described
from haversack_server.estimate.host import host_memory
from haversack_server.estimate.peaks import RunPeak
from haversack_server.estimate.questions import answered
from haversack_server.estimate.rank_peaks import fullest, over_all, rank_peaks
from haversack_server.estimate.reserved import with_replay
from haversack_server.estimate.verdict import judge, limit_of
from haversack_server.estimate.windows import moments_of, phases_of
from haversack_server.memory import ledger
from haversack_server.memory.bounds import check_bounds
from haversack_server.memory.evidence import nearest
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.model_run import ModelRun, model_run
from haversack_server.memory.stopping import Stop
from haversack_server.memory.version import MODEL_VERSION

NOT_MODELLED = (
    "initialisation from a full copy of the model",
    "fragmentation of the allocator beyond the reserved factor: 1.37 times the allocated bytes "
    "have been reported (pytorch issue 147179)",
    "communicators beyond one per axis in use, and their growth with the number of ranks",
)


def estimate_model(request: EstimateRequest, stop: Stop) -> Estimate:
    """Estimate a run of the model that the documents describe."""
    run = model_run(request, chosen_only=True)
    check_bounds(run.chain)
    with_timeline = EstimateQuestion.TIMELINE in asked(request)
    classes = rank_peaks(request, run, whole=with_timeline)
    classes, replayed = with_replay(request, run, classes, stop)
    top = fullest(classes)
    ranks, peak, line = top.ranks, over_all(classes), top.ranks.line
    limit = limit_of(request)
    where = f"{line.peak.name} ({line.peak.phase})"
    steady = max(each.ranks.chain.states.steady_bytes for each in classes)
    judgement = judge(peak, steady, limit, where)
    filled = ledger.fill(described(run, ranks.chain), line)
    outside = _outside_terms(run)
    brief = EstimateQuestion.BRIEF in request.questions
    answer = Estimate(
        verdict=judgement.verdict,
        reason_code=judgement.reason_code,
        reason=judgement.reason,
        peak=peak,
        peak_phase=line.peak.phase,
        peak_moment=line.peak.name,
        peak_rank=ranks.first_rank,
        steady_bytes=steady,
        phases=phases_of(line, ranks.chain.loading),
        timeline=moments_of(line, [column for column, _ in filled], len(outside))
        if with_timeline
        else (),
        terms=(*(term for _, term in filled), *outside),
        ranks=tuple(each.described() for each in classes),
        host=host_memory(request, [each.ranks for each in classes]),
        evidence=() if brief else nearest(run.profile.name, run.settings),
        assumptions=(*run.assumptions, *replayed),
        ignored_inputs=run.ignored_inputs,
        not_modelled=(*NOT_MODELLED, *_left_out(request.training)),
        not_validated=run.not_validated,
        model_version=MODEL_VERSION,
        basis=Basis.ANALYTIC,
    )
    return answered(answer, request, RunPeak(run, peak), stop)


def _left_out(training: Training) -> tuple[str, ...]:
    """Name the occasions that were not asked for: an answer has moments of the others alone."""
    every = (each for each in Occasion if each is not Occasion.UNSPECIFIED)
    left = [each.name.lower() for each in every if each not in training.occasions]
    return (f"not asked for in training.occasions: {', '.join(left)}",) if left else ()


def _outside_terms(run: ModelRun) -> tuple[Term, ...]:
    """Bytes outside the allocator; they are not part of the allocated peak."""
    profile = run.profile
    named = (
        ("CUDA context", "cuda_context_bytes", 1, "one per process"),
        ("communicators", "communicator_bytes", run.degrees.axes_in_use, "one per axis in use"),
    )
    return tuple(
        _outside_term(profile, name, constant, count, formula)
        for name, constant, count, formula in named
        if count
    )


def _outside_term(
    profile: KernelProfile, name: str, constant: str, count: int, formula: str
) -> Term:
    size = getattr(profile, constant) * count
    return Term(
        name=name,
        category=TermCategory.OUTSIDE,
        bytes=size,
        largest_bytes=size,
        formula=formula,
        inputs=(f"count = {count}",),
        source=profile.constant(constant).source,
        scales_with=("axes in use",) if count > 1 else (),
    )
