"""A training run as a caller describes it: the subject, and the settings around it.

What Estimate and Plan share. Nothing here has defaults with a meaning: what is not given stays
None or UNSPECIFIED, and the server says in its answer what it assumed.
"""

import enum
from dataclasses import dataclass

from haversack import checks
from haversack.errors import Violation, check
from haversack.finetuning import Finetuning
from haversack.parallelism import Parallelism
from haversack.profile import Profile

LARGEST_DOCUMENT = 2**20  # bytes
MOST_DOCUMENTS = 16
MOST_UNITS = 10_000  # each has moments of its own in the answer


class BytesKind(enum.IntEnum):
    """Which bytes a budget limits."""

    UNSPECIFIED = 0
    ALLOCATED = 1
    DEVICE = 2


class Precision(enum.IntEnum):
    """The recipe of numbers: bytes per parameter, gradient and optimizer state."""

    UNSPECIFIED = 0
    BF16_FP32_MASTER = 1
    FP32_BF16_COMPUTE = 2
    FP32 = 3
    BF16 = 4
    BF16_FP32_GRADIENT = 5


class Optimizer(enum.IntEnum):
    """The optimizer, as far as its memory goes."""

    UNSPECIFIED = 0
    ADAMW = 1
    ADAMW_FOREACH = 2
    SGD = 3
    SGD_MOMENTUM = 4
    ADAFACTOR = 5
    ADAFACTOR_FP32 = 6
    ADAMW_8BIT = 7
    PAGED_ADAMW = 8
    PAGED_ADAMW_8BIT = 9
    LION = 10
    LION_8BIT = 11
    PAGED_LION = 12
    PAGED_LION_8BIT = 13
    MUON = 14
    RMSPROP = 15
    ADAGRAD = 16


class Attention(enum.IntEnum):
    """The attention kernel that the run really uses."""

    UNSPECIFIED = 0
    FLASH = 1
    EAGER = 2
    UNKNOWN = 3


class Recompute(enum.IntEnum):
    """What is recomputed in backward."""

    UNSPECIFIED = 0
    NONE = 1
    FULL = 2
    SELECTIVE = 3


class RecomputeModule(enum.IntEnum):
    """A part of a layer that selective recomputation runs again."""

    UNSPECIFIED = 0
    CORE_ATTENTION = 1
    MLP = 2
    LAYER_NORM = 3
    MOE_ACTIVATION = 4
    MOE = 5
    LATENT_EXPANSION = 6


class RecomputeMethod(enum.IntEnum):
    """Which layers full recomputation runs again."""

    UNSPECIFIED = 0
    UNIFORM = 1
    BLOCK = 2


class Loss(enum.IntEnum):
    """How the loss is made of the last hidden states."""

    UNSPECIFIED = 0
    PLAIN = 1
    FP32 = 2
    FP32_IN_PLACE = 3
    IN_PLACE = 4
    CHUNKED = 5
    FUSED_LINEAR = 6


class NumberType(enum.IntEnum):
    """A type of floating-point numbers."""

    UNSPECIFIED = 0
    FP32 = 1
    BF16 = 2
    FP16 = 3


class OptimizerKernel(enum.IntEnum):
    """How an optimizer updates its tensors, as far as temporaries go."""

    UNSPECIFIED = 0
    FUSED = 1
    FOREACH = 2
    FOR_LOOP = 3


class StateDict(enum.IntEnum):
    """What a training checkpoint, a file, holds."""

    UNSPECIFIED = 0
    SHARDED = 1
    FULL = 2


class Occasion(enum.IntEnum):
    """Something a job does beside training steps; a saved checkpoint is a file here."""

    UNSPECIFIED = 0
    EVALUATION = 1
    SAVING = 2
    LOADING = 3


class DocumentFormat(enum.IntEnum):
    """What the text of a document is."""

    UNSPECIFIED = 0
    HF_CONFIG = 1
    DEEPSPEED = 2
    ACCELERATE = 3
    TORCHTITAN_TOML = 4
    TORCHTITAN_JSON = 5
    MEGATRON_ARGUMENTS = 6
    HF_TRAINING_ARGUMENTS = 7


# Formats whose text describes a model; the others hold settings only.
_OF_A_MODEL = (
    DocumentFormat.UNSPECIFIED,
    DocumentFormat.HF_CONFIG,
    DocumentFormat.MEGATRON_ARGUMENTS,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Bytes that may be used, and which bytes are meant."""

    bytes: int
    kind: BytesKind = BytesKind.UNSPECIFIED

    def __post_init__(self) -> None:
        check(checks.integer("budget.bytes", self.bytes))


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A figure with its margin, in bytes."""

    low_bytes: int = 0
    expected_bytes: int = 0
    high_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockAction:
    """The chosen way to run one block: the name of the block and of an option of its table."""

    block: str
    option: str
    fingerprint: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """Settings of the training step."""

    microbatch: int | None = None
    seq: int | None = None
    accumulation: int | None = None
    precision: Precision = Precision.UNSPECIFIED
    optimizer: Optimizer = Optimizer.UNSPECIFIED
    attention: Attention = Attention.UNSPECIFIED
    recompute: Recompute = Recompute.UNSPECIFIED
    actions: tuple[BlockAction, ...] = ()
    no_sync: bool | None = None
    occasions: tuple[Occasion, ...] = ()
    recompute_modules: tuple[RecomputeModule, ...] = ()
    recompute_method: RecomputeMethod = RecomputeMethod.UNSPECIFIED
    recompute_layers: int | None = None
    loss: Loss = Loss.UNSPECIFIED
    loss_chunks: int | None = None
    loss_parallel: bool | None = None
    reduce_type: NumberType = NumberType.UNSPECIFIED
    optimizer_kernel: OptimizerKernel = OptimizerKernel.UNSPECIFIED
    state_dict: StateDict = StateDict.UNSPECIFIED
    target_seq: int | None = None
    finetuning: Finetuning | None = None
    optimizer_in_backward: bool | None = None

    def __post_init__(self) -> None:
        found: list[Violation] = []
        sizes = ("microbatch", "seq", "target_seq", "accumulation")
        for name in (*sizes, "recompute_layers", "loss_chunks"):
            path = f"training.{name}"
            found += checks.optional_integer(path, getattr(self, name), least=1, most=2**31)
        if RecomputeModule.UNSPECIFIED in self.recompute_modules:
            known = ", ".join(each.name for each in RecomputeModule if each)
            found.append(Violation("training.recompute_modules", f"say which: one of {known}"))
        if self.optimizer_in_backward and (self.accumulation or 1) > 1:
            sentence = (
                f"accumulation {self.accumulation} needs gradients that stay, and an optimizer in "
                "backward frees them; turn one off"
            )
            found.append(Violation("training.optimizer_in_backward", sentence))
        if self.actions and self.recompute is not Recompute.UNSPECIFIED:
            sentence = "give recompute or actions, not both: actions name every block's option"
            found.append(Violation("training.actions", sentence))
        check(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """The device of every rank; ``memory_bytes`` are usable bytes."""

    name: str = ""
    memory_bytes: int | None = None
    flops_per_s: int | None = None
    bytes_per_s: int | None = None

    def __post_init__(self) -> None:
        found: list[Violation] = []
        for name in ("memory_bytes", "flops_per_s", "bytes_per_s"):
            found += checks.optional_integer(f"device.{name}", getattr(self, name), least=1)
        check(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class StateBytes:
    """Bytes of the whole model's states."""

    parameter_bytes: int = 0
    gradient_bytes: int = 0
    optimizer_bytes: int = 0

    def __post_init__(self) -> None:
        found: list[Violation] = []
        for name in ("parameter_bytes", "gradient_bytes", "optimizer_bytes"):
            found += checks.integer(f"state_bytes.{name}", getattr(self, name), most=2**60)
        check(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A module that is gathered at once."""

    name: str = ""
    parameter_count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """One of the user's own files, as raw text; it is parsed, never executed."""

    format: DocumentFormat
    name: str = ""
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadReference:
    """Code that builds a model: a built-in name, or an entry point that the operator allowed."""

    name: str = ""
    entry_point: str = ""
    args_json: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """A figure that the caller read on a real run."""

    phase: str = ""
    rank: int = 0
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    tokens_per_s: float | None = None

    def __post_init__(self) -> None:
        found = checks.integer("rank", self.rank, most=2**24)
        for name in ("allocated_bytes", "reserved_bytes"):
            found += checks.optional_integer(name, getattr(self, name), least=1, most=2**60)
        check(found or _measured_violations(self))


def _measured_violations(given: Measurement) -> list[Violation]:
    """Check what one figure says of another, and that there is one."""
    allocated, reserved, rate = given.allocated_bytes, given.reserved_bytes, given.tokens_per_s
    if allocated is None and reserved is None and rate is None:
        sentence = "nothing was measured; give allocated_bytes, reserved_bytes or tokens_per_s"
        return [Violation("allocated_bytes", sentence)]
    if allocated is not None and reserved is not None and reserved < allocated:
        sentence = (
            f"{reserved} bytes are less than the {allocated} of live tensors, which the allocator "
            "holds too; give the peaks of one run"
        )
        return [Violation("reserved_bytes", sentence)]
    if rate is not None and not 0 < rate < float("inf"):
        return [Violation("tokens_per_s", f"{rate} is no rate; give a number above 0")]
    return []


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """A change, with what it does to the peak and what it costs."""

    change: str
    delta_bytes: int = 0
    cost: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRun:
    """A subject and its settings; requests are made of it. Exactly one subject is set."""

    state_bytes: StateBytes | None = None
    parameter_count: int | None = None
    units: tuple[Unit, ...] = ()
    documents: tuple[Document, ...] = ()
    profile: Profile | None = None
    workload: WorkloadReference | None = None
    training: Training = Training()
    parallelism: Parallelism = Parallelism()
    device: Device = Device()
    kernel_profile: str = ""
    budget: Budget | None = None

    def subjects(self) -> dict[str, bool]:
        """Which subjects are set, by the name of their field.

        Documents that only hold settings stand beside any subject; they are the subject where
        there is no other, so that the error names the model as what is missing.
        """
        others = {
            "state_bytes": self.state_bytes is not None,
            "parameter_count": self.parameter_count is not None,
            "units": bool(self.units),
            "documents": any(each.format in _OF_A_MODEL for each in self.documents),
            "profile": self.profile is not None,
            "workload": self.workload is not None,
        }
        alone = bool(self.documents) and not any(others.values())
        return others | {"documents": others["documents"] or alone}

    def violations(self) -> list[Violation]:
        """Check the subject: one is set, and its figures are in range."""
        found = checks.exactly_one(self.subjects())
        found += checks.optional_integer("parameter_count", self.parameter_count, most=2**50)
        if len(self.units) > MOST_UNITS:
            sentence = f"{len(self.units)} units are too many; at most {MOST_UNITS} would do"
            found.append(Violation("units", sentence))
        for index, unit in enumerate(self.units):
            path = f"units[{index}].parameter_count"
            found += checks.integer(path, unit.parameter_count, most=2**50)
        if len(self.documents) > MOST_DOCUMENTS:
            count = len(self.documents)
            sentence = f"{count} files are too many; at most {MOST_DOCUMENTS} are read"
            return [*found, Violation("documents", sentence)]
        for index, document in enumerate(self.documents):
            found += _document_violations(f"documents[{index}]", document)
        return found


def _document_violations(path: str, document: Document) -> list[Violation]:
    if document.format is DocumentFormat.UNSPECIFIED:
        formats = ", ".join(each.name for each in DocumentFormat if each)
        return [Violation(f"{path}.format", f"say what the text is: one of {formats}")]
    size = len(document.text.encode(errors="surrogatepass"))
    if size > LARGEST_DOCUMENT:
        return [Violation(f"{path}.text", f"{size} bytes are above the limit of 1 MiB")]
    return []
