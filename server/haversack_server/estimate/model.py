"""A described model: its chain laid onto the timeline, with ledger, verdict and advice."""

from haversack.basis import Basis
from haversack.estimate import Estimate, EstimateRequest, Peak, RankClass, Term, TermCategory
from haversack_server.estimate.advice import advice, fewest_gpus, largest_microbatch
from haversack_server.estimate.ignored import measured
from haversack_server.estimate.verdict import judge, limit_of
from haversack_server.estimate.windows import moments_of, phases_of
from haversack_server.memory import ledger
from haversack_server.memory.bounds import check_bounds
from haversack_server.memory.kernel_profile import KernelProfile
from haversack_server.memory.margins import peak_of
from haversack_server.memory.model_run import ModelRun, model_run
from haversack_server.memory.stopping import Stop
from haversack_server.memory.timeline import Column, Timeline, timeline
from haversack_server.memory.version import MODEL_VERSION

NOT_MODELLED = (
    "initialisation from a full copy of the model, evaluation, saving and loading",
    "fragmentation of the allocator beyond the reserved factor: 1.37 times the allocated bytes "
    "have been reported (pytorch issue 147179)",
    "communicators beyond one per axis in use, and their growth with the number of ranks",
)


def estimate_model(request: EstimateRequest, stop: Stop) -> Estimate:
    """Estimate a run of the model that the documents describe."""
    run = model_run(request)
    check_bounds(run.chain)
    line = timeline(run.chain, run.choice(request.training))
    peak = peak_of(line.peak.allocated_bytes, run.profile, run.degrees)
    limit = limit_of(request)
    where = f"{line.peak.name} ({line.peak.phase})"
    judgement = judge(peak, run.chain.states.steady_bytes, limit, where)
    filled = ledger.fill(_words(run), line)
    outside = _outside_terms(run)
    return Estimate(
        verdict=judgement.verdict,
        reason_code=judgement.reason_code,
        reason=judgement.reason,
        peak=peak,
        peak_phase=line.peak.phase,
        peak_moment=line.peak.name,
        steady_bytes=run.chain.states.steady_bytes,
        phases=phases_of(line),
        timeline=moments_of(line, [column for column, _ in filled], len(outside)),
        terms=(*(term for _, term in filled), *outside),
        ranks=(_every_rank(run, line, peak),),
        advice=advice(request, peak.allocated.expected_bytes, stop),
        min_gpus=fewest_gpus(request, limit, stop),
        max_microbatch=largest_microbatch(request, limit, stop),
        assumptions=run.assumptions,
        ignored_inputs=run.ignored_inputs + measured(request),
        not_modelled=NOT_MODELLED,
        model_version=MODEL_VERSION,
        basis=Basis.ANALYTIC,
    )


def _words(run: ModelRun) -> dict[Column, Term]:
    """Describe every column that the timeline of a model can fill."""
    chain = run.chain
    elements = run.architecture.parameter_count
    states = ledger.state_terms(chain.recipe, chain.degrees, elements)
    return states | ledger.transient_terms(chain) | ledger.activation_terms(_activations(run))


def _activations(run: ModelRun) -> ledger.Words:
    profile, degrees = run.profile, run.degrees
    logits = f"logits of a microbatch = {run.shape.rows} x {run.architecture.vocab}"
    bytes_per_logit = (
        profile.logit_upcast_bytes + profile.logit_saved_bytes + profile.logit_gradient_bytes
    )
    return ledger.Words(
        tokens=f"{run.shape.microbatch} x {run.shape.seq}",
        source=f"kernel profile {profile.name}: {profile.title}",
        saved="what each block keeps from its forward to its backward, summed over blocks",
        running="what the running block adds: working tensors, gradients, recomputed activations",
        logits=(
            "final norm, head and loss: logits in the compute type, in fp32, their log-softmax "
            f"and gradients, {bytes_per_logit} bytes per logit at the height of the loss's backward"
        ),
        held="logits x bytes of the compute type, alive while the caller keeps the model's output",
        logits_inputs=(logits,),
        logits_source=profile.constant("logit_gradient_bytes").source,
        axes=(f"tp={degrees.tp}",) if degrees.tp > 1 else (),
    )


def _outside_terms(run: ModelRun) -> tuple[Term, ...]:
    """Bytes outside the allocator; they are not part of the allocated peak."""
    profile, degrees = run.profile, run.degrees
    axes = [degree for degree in (degrees.dp_replicate, degrees.dp_shard, degrees.tp) if degree > 1]
    named = (
        ("CUDA context", "cuda_context_bytes", 1, "one per process"),
        ("workspaces", "workspace_bytes", 1, "kernels' own buffers"),
        ("communicators", "communicator_bytes", len(axes), "one per axis in use"),
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


def _every_rank(run: ModelRun, line: Timeline, peak: Peak) -> RankClass:
    """Without pipeline stages and experts every rank holds the same."""
    return RankClass(
        name="every rank",
        rank_count=run.degrees.world_size,
        steady_bytes=run.chain.states.steady_bytes,
        peak=peak,
        peak_phase=line.peak.phase,
        peak_moment=line.peak.name,
    )
