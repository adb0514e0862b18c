"""A run of a described model: from the user's documents and settings to the chain of one rank.

The one place where defaults are filled in; each becomes an assumption of the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from haversack.run import Device, Training, TrainingRun
from haversack_server.memory.architecture import Architecture, Unit
from haversack_server.memory.blocks import Shape
from haversack_server.memory.chain import Chain
from haversack_server.memory.chain_blocks import BlockMaker, Rates
from haversack_server.memory.choices import choose, options_chosen
from haversack_server.memory.degrees import Degrees, assumed, resolve
from haversack_server.memory.embeddings import shared_bytes
from haversack_server.memory.evidence import Settings
from haversack_server.memory.finetuned import finetuned, numbers_of, with_wide_adapters
from haversack_server.memory.hf_config import ReadConfig
from haversack_server.memory.inputs.model import read_model
from haversack_server.memory.kernel_profile import DEFAULT, KernelProfile, load
from haversack_server.memory.model_loading import HELD_FROM_LOADING, Loading, loading_of
from haversack_server.memory.moved_activations import on_the_way
from haversack_server.memory.offload import Kept, offload_of
from haversack_server.memory.options import BlockOptions, Made, option_table, work_ns
from haversack_server.memory.prediction import MORE_AT_THE_LOSS
from haversack_server.memory.ranks import RankLine, rank_lines
from haversack_server.memory.recipe import Recipe, recipe
from haversack_server.memory.same import Same
from haversack_server.memory.schedule.assumptions import schedule_assumptions, step_assumptions
from haversack_server.memory.schedule.settings import schedule_settings
from haversack_server.memory.segments import segmented
from haversack_server.memory.settings import kinds_of_run, settings_of
from haversack_server.memory.shapes import shape_of, with_own_length
from haversack_server.memory.spread import calibrated
from haversack_server.memory.stages import (
    Boundary,
    division,
    stage_assumptions,
    stage_chains,
    untied,
)
from haversack_server.memory.standing import batch_bytes, workspace_bytes
from haversack_server.memory.states import (
    RankStates,
    UnitStates,
    architecture_units,
    rank_states,
)
from haversack_server.memory.timeline import highest_bytes
from haversack_server.memory.unread import At, unread
from haversack_server.memory.validated import Covered, not_validated, settings_in_use

# NVIDIA A100 80GB datasheet: dense bf16 and HBM2e.
A100_FLOPS_PER_S = 312 * 10**12
A100_BYTES_PER_S = 2_039 * 10**9
BACKWARD_OVER_FORWARD = 2  # two matrix products for each of the forward's


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRun:
    """The chain of a run and those of its stages, what they were made of, and what was assumed.

    ``chain`` has all blocks, as one stage would; ``stages`` has the chain of every pipeline stage.
    ``request`` has the settings as they were given, ``unknown_keys`` of the documents are read by
    nobody.
    """

    architecture: Architecture
    profile: KernelProfile
    degrees: Degrees
    shape: Shape
    chain: Chain
    stages: tuple[Chain, ...]
    settings: Settings
    kind: str
    in_use: Covered
    not_validated: tuple[str, ...]
    assumptions: tuple[str, ...]
    request: TrainingRun
    unknown_keys: tuple[str, ...]

    @property
    def ignored_inputs(self) -> tuple[str, ...]:
        """Name what was given and has no part in the answer: keys, and settings beside others."""
        at = At(self.request, self.chain, self.architecture, self.profile)
        return (*self.unknown_keys, *unread(at))

    def choice(self, training: Training) -> tuple[int, ...]:
        """Turn the run's recompute setting or actions into one option index per block."""
        return choose(self.chain, training)

    def rank_lines(self, training: Training, *, whole: bool = True) -> tuple[RankLine, ...]:
        """Lay every class of equal ranks onto its timeline, or its highest moments only."""
        known = {block.name: None for block in self.chain.blocks}
        choices = [choose(stage, training, known) for stage in self.stages]
        return rank_lines(self.stages, choices, whole=whole)

    def only_height(self, training: Training) -> int | None:
        """Give the highest bytes of the one class of ranks; None if there may be several."""
        if len(self.stages) != 1:
            return None
        return highest_bytes(self.stages[0], choose(self.stages[0], training))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filled:
    """A run with its defaults filled in, before it has a chain; what was assumed so far."""

    run: TrainingRun
    read: ReadConfig
    profile: KernelProfile
    degrees: Degrees
    numbers: Recipe
    shape: Shape
    assumptions: tuple[str, ...]

    @property
    def model(self) -> Architecture:
        """The architecture, with its weights frozen as the request says."""
        return self.read.architecture

    @property
    def grouped(self) -> bool:
        """Whether experts run as one grouped product."""
        return bool(self.model.experts) and self.model.routing.grouped

    @property
    def tied(self) -> bool:
        """Whether one rank has both the embedding and the head that shares its weight."""
        return self.model.tied and self.degrees.pp == 1


def model_run(run: TrainingRun, *, chosen_only: bool = False) -> ModelRun:
    """Read the documents, fill in the defaults, and build the chain of one rank.

    If ``chosen_only``, blocks may lack the options that the run does not choose.
    """
    filled = _filled(run)
    run, model, degrees, shape = filled.run, filled.model, filled.degrees, filled.shape
    up_to = options_chosen(run.training) if chosen_only else Made.ALL
    table = option_table(model, filled.profile, shape, up_to=up_to)
    rates, rate_assumptions = _rates(run.device)
    chain = _chain(filled, table, rates)
    stages, division_assumptions = _stages(filled, chain, table[-1].input_bytes)
    kinds = kinds_of_run(run, model, degrees, filled.profile, filled.numbers.compute)
    in_use = settings_in_use(run, model, degrees, shape, filled.numbers)
    outside = not_validated(filled.profile.name, in_use)
    with_margins, ends_from = calibrated(
        filled.profile.name, kinds, degrees.world_size, validated=not outside
    )
    return ModelRun(
        architecture=model,
        profile=with_margins,
        degrees=degrees,
        shape=shape,
        chain=chain,
        settings=settings_of(run, model, degrees, shape),
        kind=kinds[0],
        in_use=in_use,
        not_validated=outside,
        stages=stages,
        assumptions=(
            *filled.assumptions,
            *division_assumptions,
            *_kernel_assumptions(run, filled.profile, ends_from),
            *((MORE_AT_THE_LOSS,) if model.prediction_layers else ()),
            *((HELD_FROM_LOADING,) if chain.loading else ()),
            *schedule_assumptions(chain, run, filled.tied),
            *rate_assumptions,
            *filled.read.assumptions,
        ),
        request=run,
        unknown_keys=filled.read.ignored,
    )


def _filled(run: TrainingRun) -> _Filled:
    """Read the documents and fill in the defaults."""
    read = read_model(run)
    run = with_own_length(run, read.architecture)
    profile = load(run.kernel_profile or DEFAULT)
    degrees = resolve(run.parallelism)
    training, type_assumptions = numbers_of(run.training)
    numbers, recipe_assumptions = recipe(training, degrees.sharding)
    numbers = with_wide_adapters(numbers, training)
    tuned_model, tuning_assumptions = finetuned(
        read.architecture, training, numbers.compute, profile
    )
    shape, shape_assumptions = shape_of(run, degrees, numbers.compute, numbers.product)
    return _Filled(
        run=run,
        read=replace(read, architecture=tuned_model),
        profile=profile,
        degrees=degrees,
        numbers=numbers,
        shape=shape,
        assumptions=(
            *assumed(run.parallelism, degrees),
            *step_assumptions(run, degrees),
            *type_assumptions,
            *recipe_assumptions,
            *tuning_assumptions,
            *shape_assumptions,
        ),
    )


def _chain(filled: _Filled, table: Sequence[BlockOptions], rates: Rates) -> Chain:
    """Put the blocks of the whole model between the states and settings that surround them."""
    run, degrees, numbers, profile = filled.run, filled.degrees, filled.numbers, filled.profile
    settings = schedule_settings(run.parallelism, run.training)
    kept = Kept(offload_of(run.parallelism, degrees), settings.updates_in_backward)
    units, states = _states(Same(filled.model.units), degrees, numbers, kept)
    accumulation = run.training.accumulation or 1
    maker = BlockMaker(run.parallelism, rates, accumulation, numbers.compute)
    return Chain(
        blocks=maker.blocks(table, units, filled.tied),
        states=states,
        recipe=numbers,
        degrees=degrees,
        accumulation=accumulation,
        schedule=settings,
        step_ns=_step_ns(table, rates) * accumulation,
        workspace_bytes=workspace_bytes(profile, run.device, grouped=filled.grouped),
        batch_bytes=batch_bytes(profile, filled.shape),
        on_the_way_bytes=on_the_way(table) if filled.shape.offload_modules else 0,
        gradients_stand=profile.gradients_persist or numbers.main_gradients,
        graph_outlives_backward=profile.graph_outlives_backward,
        offload=kept.offload,
        loading=_loading(filled),
    )


def _loading(filled: _Filled) -> Loading | None:
    """Make and load the model, where the request says what quantizes its weights."""
    given = filled.run.training.finetuning
    if given is None or not given.quantized_by:
        return None
    return loading_of(filled.model.units, given.quantized_by, filled.numbers.parameter)


def _stages(
    filled: _Filled, chain: Chain, stream_bytes: int
) -> tuple[tuple[Chain, ...], tuple[str, ...]]:
    """Divide the chain into those of the stages, with what was assumed of them."""
    run, model, profile = filled.run, filled.model, filled.profile
    shared = shared_bytes(model, profile, filled.shape)
    ends = Boundary(stream_bytes=stream_bytes, shared_bytes=shared)
    divided, assumed_layers = division(run.parallelism, model.units)
    stages = segmented(stage_chains(chain, divided, profile, ends), run.training)
    return stages, (*assumed_layers, *stage_assumptions(divided, model.units, profile))


@lru_cache(maxsize=256)
def _states(
    of_model: Same[tuple[Unit, ...]], degrees: Degrees, numbers: Recipe, kept: Kept
) -> tuple[tuple[UnitStates, ...], RankStates]:
    """Count the states of a model once for all runs that divide it alike."""
    units = of_model.value if degrees.pp == 1 else untied(of_model.value)
    counted = architecture_units(units, degrees)
    return counted, rank_states(counted, numbers, degrees, kept)


def _rates(device: Device) -> tuple[Rates, tuple[str, ...]]:
    """FLOP/s and bytes/s of the roofline of recomputation."""
    rates = (device.flops_per_s or A100_FLOPS_PER_S, device.bytes_per_s or A100_BYTES_PER_S)
    if device.flops_per_s and device.bytes_per_s:
        return rates, ()
    sentence = (
        f"rates for the time of recomputation: {rates[0] / 1e12:.0f} TFLOP/s and "
        f"{rates[1] / 1e9:.0f} GB/s (A100 80GB datasheet where not given); a roofline, not a "
        "measurement"
    )
    return rates, (sentence,)


def _step_ns(table: Sequence[BlockOptions], rates: Rates) -> int:
    """Time of one microbatch without recomputation, by the same roofline."""
    kinds = {block.kind: block.forward_work for block in table}
    times = {kind: work_ns(work, *rates) for kind, work in kinds.items()}
    return sum(times[block.kind] for block in table) * (1 + BACKWARD_OVER_FORWARD)


def _kernel_assumptions(
    run: TrainingRun, profile: KernelProfile, ends_from: str
) -> tuple[str, ...]:
    kernels = () if run.kernel_profile else (f"kernel profile: {profile.name} ({profile.title})",)
    return (
        *kernels,
        ends_from,
        "reserved and outside bytes: constants of the kernel profile, whose sources the terms name",
    )
