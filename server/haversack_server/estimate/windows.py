"""Units of known size: the gather windows of forward and backward, moment by moment.

Idealised: units run one after the other, a unit is gathered when its turn comes (and as many ahead
as asked for) and freed when it ends. Not a measurement, and not a peak: activations are not known.
"""

from dataclasses import replace
from operator import itemgetter

from haversack.basis import Basis
from haversack.estimate import Estimate, EstimateRequest, Moment, Phase, RankClass
from haversack.questions import EstimateQuestion
from haversack_server.estimate.asked import asked
from haversack_server.estimate.host import with_host
from haversack_server.estimate.ignored import ignored
from haversack_server.estimate.verdict import judge_states, limit_of
from haversack_server.memory import ledger
from haversack_server.memory.chain import Chain, ChainBlock, Option
from haversack_server.memory.degrees import Degrees, assumed, resolve
from haversack_server.memory.model_loading import QUANTIZING, Loading
from haversack_server.memory.offload import Kept, offload_of
from haversack_server.memory.parameter_split import shard_evenly
from haversack_server.memory.recipe import Recipe, recipe
from haversack_server.memory.schedule.assumptions import step_assumptions
from haversack_server.memory.schedule.settings import schedule_settings
from haversack_server.memory.schedule.terms import transient_terms
from haversack_server.memory.states import UnitStates, rank_states
from haversack_server.memory.stopping import Stop
from haversack_server.memory.timeline import Timeline, timeline
from haversack_server.memory.unused import TIMELINE, WINDOWS
from haversack_server.memory.version import MODEL_VERSION

_NOTHING = Option(name="save", retained_bytes=0, forward_peak_bytes=0, backward_peak_bytes=0)
_IDEALISED = "the gather windows are idealised: units run one after the other; not a measurement"
_NO_ACTIVATIONS = (
    "activations, logits and the allocator's reserve: the subject has no sizes for them, so the "
    "highest moment of this timeline is not a peak"
)


def estimate_units(request: EstimateRequest, stop: Stop) -> Estimate:
    """Lay states and gathered units onto the timeline."""
    degrees = resolve(request.parallelism)
    numbers, assumptions = recipe(request.training, degrees.sharding)
    chain = _chain(request, numbers, degrees)
    line = timeline(chain, [0] * len(chain.blocks))
    count = sum(unit.parameter_count for unit in request.units)
    words = ledger.state_terms(numbers, degrees, count) | transient_terms(chain)
    filled = ledger.fill(words, line)
    judgement = judge_states(line.peak.allocated_bytes, limit_of(request))
    ahead = f"units gathered ahead of the one that runs: {chain.schedule.prefetch_units}"
    answer = Estimate(
        verdict=judgement.verdict,
        reason_code=judgement.reason_code,
        reason=judgement.reason,
        steady_bytes=chain.states.steady_bytes,
        phases=phases_of(line),
        timeline=moments_of(line, [column for column, _ in filled])
        if EstimateQuestion.TIMELINE in asked(request)
        else (),
        terms=tuple(term for _, term in filled),
        ranks=(
            RankClass(
                name="every rank",
                rank_count=degrees.world_size,
                steady_bytes=chain.states.steady_bytes,
            ),
        ),
        assumptions=(
            _IDEALISED,
            *((ahead,) if degrees.shards_parameters else ()),
            *assumptions,
            *assumed(request.parallelism, degrees),
            *step_assumptions(request, degrees),
        ),
        ignored_inputs=ignored(request, chain, training=TIMELINE, parallelism=WINDOWS),
        not_modelled=(_NO_ACTIVATIONS,),
        model_version=MODEL_VERSION,
        basis=Basis.ANALYTIC,
    )
    return with_host(answer, request, chain.states.host, numbers, degrees)


def _chain(request: EstimateRequest, numbers: Recipe, degrees: Degrees) -> Chain:
    units = []
    for index, unit in enumerate(request.units):
        whole = shard_evenly(unit.parameter_count, degrees.tp)
        shard = shard_evenly(whole, degrees.shard_ranks)
        # A gather brings equal shards, so the gathered unit has the padding too.
        gathered = shard * degrees.shard_ranks if degrees.shards_parameters else whole
        name = unit.name or f"units[{index}]"
        units.append(UnitStates(name=name, whole=gathered, shard=shard))
    settings = schedule_settings(request.parallelism, request.training)
    kept = Kept(offload_of(request.parallelism, degrees))
    return Chain(
        blocks=tuple(ChainBlock(name=unit.name, unit=unit, options=(_NOTHING,)) for unit in units),
        states=rank_states(units, numbers, degrees, kept),
        offload=kept.offload,
        recipe=numbers,
        degrees=degrees,
        accumulation=request.training.accumulation or 1,
        schedule=replace(settings, idealised=True),
    )


def phases_of(line: Timeline, loading: Loading | None = None) -> tuple[Phase, ...]:
    """The highest moment of each phase."""
    return tuple(
        Phase(
            name=name,
            peak_bytes=moment.allocated_bytes,
            peak_moment=moment.name,
            reserved_bytes=loading.reserved_bytes if loading and name == QUANTIZING else None,
        )
        for name, moment in line.by_phase().items()
    )


def moments_of(line: Timeline, columns: list[int], outside: int = 0) -> tuple[Moment, ...]:
    """Every moment, with the bytes of the columns that the ledger names.

    ``outside`` terms beside them lie outside the allocator: 0 at every moment.
    """
    zeros = (0,) * outside
    bytes_of = itemgetter(slice(0), *columns)  # the first makes it give a tuple, however few follow
    return tuple(
        Moment(
            phase=phase,
            name=name,
            allocated_bytes=allocated_bytes,
            term_bytes=bytes_of(bytes_by_column)[1:] + zeros,
        )
        for phase, name, _, _, bytes_by_column, allocated_bytes in line.moments
    )
