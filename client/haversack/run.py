"""A training run as a caller describes it: the subject, and the settings around it.

What Estimate and Plan share. Nothing here has defaults with a meaning: what is not given stays
None or UNSPECIFIED, and the server says in its answer what it assumed.
"""

import enum
from dataclasses import dataclass

from haversack import checks
from haversack.errors import Violation, check
from haversack.parallelism import Parallelism
from haversack.profile import Profile
from haversack.training import (
    Attention,
    BlockAction,
    Fp8Recipe,
    Loss,
    NumberType,
    Occasion,
    OffloadModule,
    Optimizer,
    OptimizerKernel,
    Precision,
    Recompute,
    RecomputeMethod,
    RecomputeModule,
    StateDict,
    Training,
)

__all__ = [
    "LARGEST_DOCUMENT",
    "MOST_DOCUMENTS",
    "MOST_UNITS",
    "Advice",
    "Attention",
    "BlockAction",
    "Budget",
    "BytesKind",
    "Device",
    "Document",
    "DocumentFormat",
    "Fp8Recipe",
    "Interval",
    "Loss",
    "Measurement",
    "NumberType",
    "Occasion",
    "OffloadModule",
    "Optimizer",
    "OptimizerKernel",
    "Precision",
    "Recompute",
    "RecomputeMethod",
    "RecomputeModule",
    "StateBytes",
    "StateDict",
    "Training",
    "TrainingRun",
    "Unit",
    "WorkloadReference",
]

LARGEST_DOCUMENT = 2**20  # bytes
MOST_DOCUMENTS = 16
MOST_UNITS = 10_000  # each has moments of its own in the answer


class BytesKind(enum.IntEnum):
    """Which bytes a budget limits."""

    UNSPECIFIED = 0
    ALLOCATED = 1
    DEVICE = 2


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
