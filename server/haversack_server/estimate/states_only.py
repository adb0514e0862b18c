"""Subjects without activations: bytes of states, a number of parameters.

What is answered is the steady part, and the answer says that it is not a peak.
"""

from dataclasses import replace

from haversack.basis import Basis
from haversack.estimate import Estimate, EstimateRequest, RankClass, Term, TermCategory
from haversack.run import Training
from haversack_server.estimate.host import with_host
from haversack_server.estimate.ignored import ignored
from haversack_server.estimate.verdict import judge_states, limit_of
from haversack_server.memory import ledger
from haversack_server.memory.chain import Chain
from haversack_server.memory.degrees import Degrees, assumed, resolve
from haversack_server.memory.offload import NOTHING, Kept, Offload, offload_of
from haversack_server.memory.parameter_split import shard_evenly
from haversack_server.memory.recipe import Recipe, recipe
from haversack_server.memory.states import RankStates, UnitStates, rank_states
from haversack_server.memory.stopping import Stop
from haversack_server.memory.timeline import Column
from haversack_server.memory.unused import AXES, HOST, RECIPE
from haversack_server.memory.version import MODEL_VERSION

BESIDE_STATES = (
    "this is the steady part, not a peak: activations, logits, gathered units, reduce buffers, "
    "optimizer temporaries and the allocator's reserve come on top"
)


def estimate_state_bytes(request: EstimateRequest, stop: Stop) -> Estimate:
    """Shard the bytes of states that the caller names."""
    states = request.state_bytes
    assert states is not None
    degrees = resolve(request.parallelism)
    named = (
        ("parameters", TermCategory.PARAMETER, states.parameter_bytes, degrees.shards_parameters),
        ("gradients", TermCategory.GRADIENT, states.gradient_bytes, degrees.shards_gradients),
        (
            "optimizer state",
            TermCategory.OPTIMIZER,
            states.optimizer_bytes,
            degrees.shards_optimizer,
        ),
    )
    terms = [_named_term(*each, degrees) for each in named]
    numbers, _ = recipe(Training(), degrees.sharding)  # of which no byte is counted
    chain = _without_blocks(rank_states((), numbers, degrees), numbers, degrees)
    left = ignored(request, chain, training=frozenset(), parallelism=AXES)
    return _steady(request, degrees, terms, (), left)


def _without_blocks(
    states: RankStates, numbers: Recipe, degrees: Degrees, offload: Offload = NOTHING
) -> Chain:
    """Put states where settings are looked up beside them; there is nothing to run."""
    return Chain(blocks=(), states=states, recipe=numbers, degrees=degrees, offload=offload)


def _named_term(
    name: str, category: TermCategory, whole_bytes: int, sharded: bool, degrees: Degrees
) -> Term:
    """One kind of state: the caller's bytes, divided by the axes that shard it."""
    shards = "dp_shard" if degrees.cp == 1 else "dp_shard x cp"
    axes = {"tp": degrees.tp, shards: degrees.shard_ranks if sharded else 1}
    size = whole_bytes
    for ranks in axes.values():
        size = shard_evenly(size, ranks)
    return Term(
        name=name,
        category=category,
        bytes=size,
        formula=f"{name} of the whole model, divided by the ranks that shard it, rounded up",
        inputs=(f"bytes of the whole model = {whole_bytes}",),
        source="the request",
        scales_with=("parameters",),
        sharded_over=tuple(f"{axis}={ranks}" for axis, ranks in axes.items() if ranks > 1),
    )


def estimate_parameter_count(request: EstimateRequest, stop: Stop) -> Estimate:
    """Count the states of a number of parameters by the recipe of numbers."""
    count = request.parameter_count
    assert count is not None
    degrees = resolve(request.parallelism)
    numbers, assumptions = recipe(request.training, degrees.sharding)
    whole = shard_evenly(count, degrees.tp)
    unit = UnitStates(name="model", whole=whole, shard=shard_evenly(whole, degrees.shard_ranks))
    offload = offload_of(request.parallelism, degrees)
    states = rank_states([unit], numbers, degrees, Kept(offload))
    sizes = {
        Column.PARAMETERS: states.parameter_bytes,
        Column.GRADIENTS: states.gradient_bytes,
        Column.MASTER: states.master_bytes,
        Column.MOMENTS: states.moment_bytes,
    }
    words = ledger.state_terms(numbers, degrees, count)
    terms = [replace(words[column], bytes=size) for column, size in sizes.items()]
    chain = _without_blocks(states, numbers, degrees, offload)
    left = ignored(request, chain, training=RECIPE, parallelism=HOST)
    answer = _steady(request, degrees, terms, assumptions, left)
    return with_host(answer, request, states.host, numbers, degrees)


def _steady(
    request: EstimateRequest,
    degrees: Degrees,
    terms: list[Term],
    assumptions: tuple[str, ...],
    ignored_inputs: tuple[str, ...],
) -> Estimate:
    steady = sum(term.bytes for term in terms)
    judgement = judge_states(steady, limit_of(request))
    every = RankClass(name="every rank", rank_count=degrees.world_size, steady_bytes=steady)
    return Estimate(
        verdict=judgement.verdict,
        reason_code=judgement.reason_code,
        reason=judgement.reason,
        steady_bytes=steady,
        terms=tuple(replace(term, largest_bytes=term.bytes) for term in terms if term.bytes),
        ranks=(every,),
        assumptions=(*assumptions, *assumed(request.parallelism, degrees)),
        ignored_inputs=ignored_inputs,
        not_modelled=(BESIDE_STATES,),
        model_version=MODEL_VERSION,
        basis=Basis.ANALYTIC,
    )
