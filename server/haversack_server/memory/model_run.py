"""A run of a described model: from the user's documents and settings to the chain of one rank.

The one place where defaults are filled in; each becomes an assumption of the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.run import Attention, Device, DocumentFormat, Recompute, Training, TrainingRun
from haversack_server.memory.architecture import Architecture, UnitKind
from haversack_server.memory.attention import AttentionKind
from haversack_server.memory.blocks import Shape
from haversack_server.memory.chain import Chain, ChainBlock, Option
from haversack_server.memory.degrees import Degrees, assumed, resolve
from haversack_server.memory.hf_config import ReadConfig, read_hf_config
from haversack_server.memory.kernel_profile import KernelProfile, load
from haversack_server.memory.options import BlockOptions, option_table, roofline_ns, work_ns
from haversack_server.memory.recipe import recipe
from haversack_server.memory.states import UnitStates, architecture_units, rank_states
from haversack_server.memory.tape import OptionRow

KERNEL_PROFILE = "hf-eager"
BUCKET_ELEMENTS = 500_000_000  # DeepSpeed's default reduce_bucket_size
# NVIDIA A100 80GB datasheet: dense bf16 and HBM2e.
A100_FLOPS_PER_S = 312 * 10**12
A100_BYTES_PER_S = 2_039 * 10**9
Rates = tuple[int, int]
BACKWARD_OVER_FORWARD = 2  # two matrix products for each of the forward's


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRun:
    """One rank's chain, what it was made of, and what was assumed on the way."""

    architecture: Architecture
    profile: KernelProfile
    degrees: Degrees
    shape: Shape
    chain: Chain
    assumptions: tuple[str, ...]
    ignored_inputs: tuple[str, ...]

    def choice(self, training: Training) -> tuple[int, ...]:
        """Turn the run's recompute setting or actions into one option index per block."""
        if training.actions:
            return _choice_of_actions(self.chain, training)
        wanted = "recompute" if training.recompute is Recompute.FULL else "save"
        return tuple(block.option_index(wanted) or 0 for block in self.chain.blocks)


def model_run(run: TrainingRun) -> ModelRun:
    """Read the documents, fill in the defaults, and build the chain of one rank."""
    read = _read(run)
    profile = load(run.kernel_profile or KERNEL_PROFILE)
    degrees = resolve(run.parallelism)
    numbers, recipe_assumptions = recipe(run.training, degrees.sharding)
    shape, shape_assumptions = _shape(run.training, degrees, numbers.compute)
    table = option_table(read.architecture, profile, shape)
    rates, rate_assumptions = _rates(run.device)
    units = architecture_units(read.architecture.units, degrees)
    prefetch = run.parallelism.prefetch_units
    accumulation = run.training.accumulation or 1
    chain = Chain(
        blocks=_blocks(table, units, read.architecture.tied, rates, accumulation),
        states=rank_states(units, numbers, degrees),
        recipe=numbers,
        degrees=degrees,
        accumulation=accumulation,
        prefetch_units=1 if prefetch is None else prefetch,
        reduce_bucket_elements=run.parallelism.reduce_bucket_elements or BUCKET_ELEMENTS,
        step_ns=_step_ns(table, rates) * accumulation,
    )
    assumptions = (
        *assumed(run.parallelism, degrees),
        *step_assumptions(run, degrees),
        *recipe_assumptions,
        *shape_assumptions,
        *_kernel_assumptions(run, profile),
        *_schedule_assumptions(chain, read.architecture),
        *rate_assumptions,
        *read.assumptions,
    )
    return ModelRun(
        architecture=read.architecture,
        profile=profile,
        degrees=degrees,
        shape=shape,
        chain=chain,
        assumptions=assumptions,
        ignored_inputs=read.ignored,
    )


def _read(run: TrainingRun) -> ReadConfig:
    """Read the one document that this version reads."""
    for index, document in enumerate(run.documents):
        if document.format is not DocumentFormat.HF_CONFIG:
            raise NotSupportedError(
                f"documents[{index}].format: this version reads HF_CONFIG, not "
                f"{document.format.name}; give its settings as training and parallelism"
            )
    document, *others = run.documents
    if others:
        raise InvalidRequestError(
            f"{len(run.documents)} model configurations are too many; send one", field="documents"
        )
    return _read_once(document.text, document.name)


@lru_cache(maxsize=64)
def _read_once(text: str, name: str) -> ReadConfig:
    """Read a document once for a request and all its variations."""
    return read_hf_config(text, name, field="documents[0].text")


def _shape(
    training: Training, degrees: Degrees, compute_bytes: int
) -> tuple[Shape, tuple[str, ...]]:
    if training.seq is None:
        raise InvalidRequestError(
            "activations depend on the tokens of a sequence; give seq, such as 4096",
            field="training.seq",
        )
    eager = training.attention is Attention.EAGER
    shape = Shape(
        microbatch=training.microbatch or 1,
        seq=training.seq,
        compute_bytes=compute_bytes,
        attention=AttentionKind.EAGER if eager else AttentionKind.FLASH,
        tp=degrees.tp,
        sequence_parallel=degrees.sequence_parallel,
    )
    assumptions = []
    if training.microbatch is None:
        assumptions.append("microbatch: 1 sequence")
    if training.attention is Attention.UNSPECIFIED:
        assumptions.append("attention: a flash kernel, which keeps no score matrix")
    if training.recompute is Recompute.UNSPECIFIED and not training.actions:
        assumptions.append("recompute: none, every block saves its activations")
    return shape, tuple(assumptions)


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


def _blocks(
    table: Sequence[BlockOptions],
    units: Sequence[UnitStates],
    tied: bool,
    rates: Rates,
    accumulation: int,
) -> tuple[ChainBlock, ...]:
    # Blocks of one kind share their rows, so each row is turned into an option once.
    options = {id(block.options): block.options for block in table}
    made = {key: _options(rows, rates, accumulation) for key, rows in options.items()}
    return tuple(
        ChainBlock(
            name=block.name,
            unit=unit,
            options=made[id(block.options)],
            is_head=block.kind is UnitKind.HEAD,
            held_by_caller_bytes=block.logits.held_by_caller_bytes if block.logits else 0,
            # A tied weight is one parameter: embedding and head are then gathered together.
            root=tied and block.kind is not UnitKind.LAYER,
        )
        for block, unit in zip(table, units, strict=True)
    )


def _options(rows: Sequence[OptionRow], rates: Rates, accumulation: int) -> tuple[Option, ...]:
    return tuple(
        Option(
            name=row.name,
            retained_bytes=row.retained_bytes,
            # A block can never peak below what it retains.
            forward_peak_bytes=max(row.forward_peak_bytes, row.retained_bytes),
            backward_peak_bytes=max(row.backward_peak_bytes, row.retained_bytes),
            extra_ns=roofline_ns(row, *rates) * accumulation,
        )
        for row in rows
    )


def _step_ns(table: Sequence[BlockOptions], rates: Rates) -> int:
    """Time of one microbatch without recomputation, by the same roofline."""
    kinds = {block.kind: block.forward_work for block in table}
    times = {kind: work_ns(work, *rates) for kind, work in kinds.items()}
    return sum(times[block.kind] for block in table) * (1 + BACKWARD_OVER_FORWARD)


def _choice_of_actions(chain: Chain, training: Training) -> tuple[int, ...]:
    """Find the option that each action names; blocks without one save."""
    places = {block.name: place for place, block in enumerate(chain.blocks)}
    choice = [block.option_index("save") or 0 for block in chain.blocks]
    named: set[str] = set()
    for index, action in enumerate(training.actions):
        path = f"training.actions[{index}]"
        if action.block in named:
            raise InvalidRequestError(
                f"{action.block[:60]!r} stands twice; keep one", field=f"{path}.block"
            )
        named.add(action.block)
        if action.block not in places:
            raise InvalidRequestError(
                f"{action.block!r} is no block; blocks are {chain.blocks[0].name}, "
                f"{chain.blocks[1].name} ... {chain.blocks[-1].name}",
                field=f"{path}.block",
            )
        block = chain.blocks[places[action.block]]
        option = block.option_index(action.option)
        if option is None:
            known = ", ".join(each.name for each in block.options)
            raise InvalidRequestError(
                f"{block.name} has no option {action.option!r}; it has {known}",
                field=f"{path}.option",
            )
        choice[places[action.block]] = option
    return tuple(choice)


def step_assumptions(run: TrainingRun, degrees: Degrees) -> tuple[str, ...]:
    """Say what was filled in of the step: its microbatches, and the buckets of ZeRO 1 and 2."""
    made = []
    if run.training.accumulation is None:
        made.append("accumulation: one microbatch in an optimizer step")
    elif run.training.accumulation > 1 and degrees.shards_gradients:
        made.append("gradients are reduced in every microbatch, never kept whole (no_sync)")
    bucketed = degrees.shards_optimizer and not degrees.shards_parameters
    if bucketed and run.parallelism.reduce_bucket_elements is None:
        made.append(f"reduce bucket: {BUCKET_ELEMENTS:,} elements, DeepSpeed's default")
    return tuple(made)


def _kernel_assumptions(run: TrainingRun, profile: KernelProfile) -> tuple[str, ...]:
    margin = profile.margin_permille / 10
    kernels = () if run.kernel_profile else (f"kernel profile: {profile.name} ({profile.title})",)
    return (
        *kernels,
        f"low and high ends: expected -/+ {margin:g} %, a named margin that is not calibrated",
        "reserved and outside bytes: constants of the kernel profile that are not calibrated",
    )


def _schedule_assumptions(chain: Chain, architecture: Architecture) -> tuple[str, ...]:
    made = ["gradients are freed at the end of a step (set_to_none)"]
    if any(block.held_by_caller_bytes for block in chain.blocks):
        made.append("the caller keeps the model's output (its logits) until the step ends")
    if chain.degrees.shards_parameters:
        ahead = f"{chain.prefetch_units} gathered ahead of the one that runs"
        made.append(f"units: embedding, each layer, head; {ahead}; freed after forward")
        made.append("the model is created sharded: no rank ever holds all of it")
    if chain.degrees.shards_parameters and architecture.tied:
        made.append("the tied embedding and head are one unit, gathered for the whole step")
    return tuple(made)
