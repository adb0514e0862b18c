"""Tracing: which run a worker is asked to make, and what its figures say of the closed form.

A worker builds the model of a described run and takes two steps of it under FSDP on the CPU. Its
kernels are the CPU's, so the closed form is compared under the profile of those kernels; the
difference between that profile and the request's is what corrects the traced bytes. Imports no
torch and starts no process.
"""

from dataclasses import dataclass, replace

from haversack.basis import Basis
from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.estimate import Estimate, EstimateRequest
from haversack.parallelism import Sharding, WrapPolicy
from haversack.questions import EstimateQuestion
from haversack.run import Attention, Optimizer, Recompute, Training, TrainingRun
from haversack.trace import Trace, TracedPhase
from haversack.units import format_bytes
from haversack_server.estimate.answer import estimate
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.degrees import resolve
from haversack_server.memory.inputs.model import read_model
from haversack_server.memory.kernel_profile import DEFAULT
from haversack_server.memory.offload import offload_of
from haversack_server.memory.recipe import recipe
from haversack_server.memory.schedule.settings import schedule_settings

CPU_PROFILE = "hf-cpu"
REAL_ELEMENTS = 100_000_000  # of a model whose states and gathered units are really allocated
REAL_TOKENS = 16_384  # of its microbatch
MOST_LAYERS = 128  # of any other, whose tensors have no bytes: each takes about half a second
TOLERANCE_PERMILLE = 10
_SHARDED = (Sharding.FSDP1, Sharding.FSDP2)
_OPTIMIZERS = (
    Optimizer.ADAMW,
    Optimizer.ADAMW_FOREACH,
    Optimizer.SGD,
    Optimizer.SGD_MOMENTUM,
)
_PHASES = {"forward": ("forward", "loss"), "backward": ("backward",), "optimizer": ("optimizer",)}
_CORRECTIONS = (
    "dropout keeps its mask in the activation's type on the CPU, 1 byte per element on CUDA",
    "norms keep copies in fp32 on the CPU where fused kernels keep a statistic per row",
    "attention is the CPU's kernel; a flash kernel keeps query, key, value, output and logsumexp",
    "the allocator rounds nothing and reserves nothing",
    "frees that streams defer, and what the communication library takes, are not there",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOrder:
    """One run of a worker: a model of transformers under ``fully_shard`` on the fake group.

    Element sizes are in bytes; ``reduce_bytes`` may differ from ``compute_bytes``. ``flat`` is
    FSDP1, ``FullyShardedDataParallel``, whose prefetch is apart. The tensors of a large model are
    ``fake``: they have no bytes.
    """

    config_json: str
    attention: str
    microbatch: int
    seq: int
    shards: int
    replicas: int = 1
    wraps_layers_only: bool = False
    layers_per_unit: int = 1
    reshard_after_forward: bool = True
    reshard_ranks: int = 0
    prefetch_units: int = 0
    parameter_bytes: int = 4
    compute_bytes: int = 4
    reduce_bytes: int = 4
    optimizer: str = "adamw"
    optimizer_kernel: str = "fused"
    recompute: bool = False
    flat: bool = False
    backward_prefetch: str = "pre"
    fake: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFound:
    """What a worker found: the highest bytes of each phase, or why there are none."""

    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    versions: str = ""
    failure: str = ""


def trace_order(request: EstimateRequest) -> TraceOrder:
    """Say what a worker is to run; raises what says why it cannot."""
    degrees = resolve(request.parallelism)
    _check_kind(request)
    read = read_model(request)
    is_large = _is_large(read.architecture, request.training)
    if is_large:
        _check_large(read.architecture, request)
    numbers, _ = recipe(request.training, degrees.sharding)
    settings = schedule_settings(request.parallelism, request.training)
    training = request.training
    return TraceOrder(
        config_json=request.documents[0].text,
        attention="eager" if training.attention is Attention.EAGER else "sdpa",
        microbatch=training.microbatch or 1,
        seq=training.seq or 1,
        shards=degrees.dp_shard,
        replicas=degrees.dp_replicate,
        wraps_layers_only=request.parallelism.wrap is WrapPolicy.LAYERS,
        layers_per_unit=request.parallelism.layers_per_unit or 1,
        reshard_after_forward=settings.reshard_after_forward,
        reshard_ranks=settings.reshard_ranks,
        prefetch_units=settings.prefetch_units,
        parameter_bytes=numbers.parameter,
        compute_bytes=numbers.compute,
        reduce_bytes=numbers.reduce,
        optimizer=numbers.optimizer.name.lower(),
        optimizer_kernel=numbers.optimizer_kernel.name.lower(),
        recompute=training.recompute is Recompute.FULL,
        flat=degrees.sharding is Sharding.FSDP1,
        backward_prefetch=settings.backward_prefetch.name.lower(),
        fake=is_large,
    )


def _check_kind(request: TrainingRun) -> None:
    """Refuse what a trace does not run, by name."""
    degrees, training = resolve(request.parallelism), request.training
    numbers = recipe(training, degrees.sharding)[0]
    master = numbers.master
    others = {
        f"sharding {degrees.sharding.name}": degrees.sharding not in _SHARDED,
        "replicas of FSDP1": degrees.sharding is Sharding.FSDP1 and degrees.dp_replicate > 1,
        "tensor, pipeline, context or expert parallelism": max(
            degrees.tp, degrees.pp, degrees.cp, degrees.ep
        )
        > 1,
        "accumulation": (training.accumulation or 1) > 1,
        "explicit actions": bool(training.actions),
        "selective recomputation": training.recompute is Recompute.SELECTIVE,
        "a master copy in the optimizer": bool(master),
        f"the optimizer {numbers.optimizer.name}": numbers.optimizer not in _OPTIMIZERS,
        "an optimizer in backward": bool(training.optimizer_in_backward),
        "offload": bool(offload_of(request.parallelism, degrees)),
        "layers_per_unit": (request.parallelism.layers_per_unit or 1) > 1,
        "a subject other than one config.json": len(request.documents) != 1,
    }
    found = [what for what, is_used in others.items() if is_used]
    if found:
        raise NotSupportedError(
            f"questions: a trace runs FSDP2 or FSDP1 of one config.json, without {found[0]}; leave "
            "out TRACE, or that"
        )


def _is_large(model: Architecture, training: Training) -> bool:
    """Tell whether real tensors would take a worker's memory or minutes."""
    tokens = (training.microbatch or 1) * (training.seq or 1)
    return model.parameter_count > REAL_ELEMENTS or tokens > REAL_TOKENS


def _check_large(model: Architecture, request: TrainingRun) -> None:
    """Refuse what does not run on tensors without bytes, and what would take minutes."""
    size = f"{REAL_ELEMENTS:,} parameters or {REAL_TOKENS:,} tokens"
    if model.layers > MOST_LAYERS:
        raise InvalidRequestError(
            f"a trace of {model.layers} layers takes too long; above {size} at most {MOST_LAYERS} "
            "would do: send the same configuration with fewer layers",
            field="questions",
        )
    others = {
        "experts, which are chosen by values": bool(model.experts),
        "resharding to fewer ranks": bool(request.parallelism.reshard_ranks),
    }
    found = [what for what, is_used in others.items() if is_used]
    if found:
        raise NotSupportedError(
            f"questions: above {size} a trace runs on tensors without values, and not with "
            f"{found[0]}; send fewer layers or tokens, or leave out TRACE"
        )


def with_trace(answer: Estimate, request: EstimateRequest, found: TraceFound) -> Estimate:
    """Put the traced figures beside the closed form."""
    on_cpu = _closed_form(request, CPU_PROFILE)
    asked = _closed_form(request, request.kernel_profile or DEFAULT)
    phases = tuple(
        TracedPhase(
            name=name,
            traced_bytes=size,
            expected_bytes=on_cpu.get(name, 0),
            corrected_bytes=size + asked.get(name, 0) - on_cpu.get(name, 0),
        )
        for name, size in zip(found.names, found.sizes, strict=True)
    )
    traced = max(phases, key=lambda phase: phase.traced_bytes)
    expected = max(phases, key=lambda phase: phase.expected_bytes)
    apart = abs(traced.traced_bytes - expected.expected_bytes)
    near = apart * 1000 <= TOLERANCE_PERMILLE * traced.traced_bytes
    trace = Trace(
        phases=phases,
        peak_bytes=traced.traced_bytes,
        peak_phase=traced.name,
        confirmed=near and traced.name == expected.name,
        corrections=_corrections(traced),
        method=_method(request, found),
        basis=Basis.SIMULATED,
    )
    return replace(answer, trace=trace)


def _closed_form(request: EstimateRequest, profile: str) -> dict[str, int]:
    """Give the highest bytes of each traced phase, by the closed form under a profile."""
    brief = replace(
        request,
        kernel_profile=profile,
        questions=(EstimateQuestion.BRIEF,),
        what_ifs=(),
        measurements=(),
        oom=None,
    )
    peaks = {phase.name: phase.peak_bytes for phase in estimate(brief).phases}
    return {
        f"step {step} {name}": max(peaks.get(f"step {step} {part}", 0) for part in parts)
        for step in (1, 2)
        for name, parts in _PHASES.items()
    }


def _corrections(peak: TracedPhase) -> tuple[str, ...]:
    moved = peak.corrected_bytes - peak.traced_bytes
    sign = "-" if moved < 0 else "+"
    words = f"kernels and workspaces of the profile instead of the CPU's: {sign}"
    return (f"{words}{format_bytes(abs(moved))} at the peak", *_CORRECTIONS)


def _method(request: EstimateRequest, found: TraceFound) -> str:
    degrees = resolve(request.parallelism)
    flat = degrees.sharding is Sharding.FSDP1
    what = "FullyShardedDataParallel" if flat else "fully_shard"
    large = _is_large(read_model(request).architecture, request.training)
    tensors = "CPU tensors without bytes" if large else "CPU tensors"
    return (
        f"two steps of {what} on rank 0 of {degrees.world_size} (fake process group, {tensors}) "
        f"under PyTorch's memory tracker, {found.versions}; inputs and buffers of the "
        "model are counted, the allocator and other ranks are not"
    )
