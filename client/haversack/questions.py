"""Questions on top of an estimate: what ran out, what would fit, what it costs, what was measured.

Knows no figures of a run; those are the estimate's.
"""

import enum
from dataclasses import dataclass

from haversack import checks
from haversack.errors import Violation, check
from haversack.run import Interval

LARGEST_OOM_TEXT = 2**16  # bytes; an error with its traceback, not a log


class EstimateQuestion(enum.IntEnum):
    """What an estimate answers beside verdict, peak, phases, terms and ranks."""

    UNSPECIFIED = 0
    BRIEF = 1
    TIMELINE = 2
    ADVICE = 3
    MIN_GPUS = 4
    MAX_MICROBATCH = 5
    MAX_SEQ = 6
    CHEAPEST_CHANGE = 7
    COLLECTIVES = 8
    KNOBS = 9
    TRACE = 10
    ALLOCATOR = 11


class OomMatchKind(enum.IntEnum):
    """How a tensor meets the size of a failed allocation."""

    UNSPECIFIED = 0
    EXACT = 1
    IMPLIED = 2


class OomCauseKind(enum.IntEnum):
    """Which assumption broke."""

    UNSPECIFIED = 0
    EXPECTED_PEAK = 1
    ABOVE_ESTIMATE = 2
    FRAGMENTATION = 3
    OTHER_PROCESS = 4
    OUTSIDE_ALLOCATOR = 5
    SMALLER_DEVICE = 6
    OTHER_SETTING = 7
    PROCESS_LIMIT = 8


class CollectiveKind(enum.IntEnum):
    """How ranks talk."""

    UNSPECIFIED = 0
    ALL_GATHER = 1
    REDUCE_SCATTER = 2
    ALL_REDUCE = 3
    ALL_TO_ALL = 4
    SEND = 5


class ResidualPosition(enum.IntEnum):
    """Where a measured figure lies beside the interval."""

    UNSPECIFIED = 0
    BELOW = 1
    INSIDE = 2
    ABOVE = 3


class MeasuredBytes(enum.IntEnum):
    """Which bytes were measured."""

    UNSPECIFIED = 0
    ALLOCATED = 1
    RESERVED = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class OutOfMemory:
    """An error of a full device: its text, or its figures; figures take precedence."""

    text: str = ""
    requested_bytes: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    process_bytes: int | None = None
    allocated_bytes: int | None = None
    unallocated_bytes: int | None = None
    device_index: int | None = None
    allowed_bytes: int | None = None
    phase: str = ""

    def __post_init__(self) -> None:
        found: list[Violation] = []
        for name in (
            "requested_bytes", "total_bytes", "free_bytes", "process_bytes", "allocated_bytes",
            "unallocated_bytes", "device_index", "allowed_bytes",
        ):  # fmt: skip
            found += checks.optional_integer(f"oom.{name}", getattr(self, name), most=2**60)
        size = len(self.text.encode(errors="surrogatepass"))
        if size > LARGEST_OOM_TEXT:
            sentence = f"{size} bytes are above the limit of 64 KiB; give the line of the error"
            found.append(Violation("oom.text", sentence))
        if not self.text and self.requested_bytes is None:
            sentence = "give the text of the error, or the requested bytes"
            found.append(Violation("oom.text", sentence))
        check(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class OomMatch:
    """A tensor whose size is that of the failed allocation."""

    tensor: str
    kind: OomMatchKind = OomMatchKind.UNSPECIFIED
    bytes: int = 0
    formula: str = ""
    phases: tuple[str, ...] = ()
    implies: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class OomCause:
    """An assumption that broke, or that none did."""

    kind: OomCauseKind
    bytes: int = 0
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class OomExplanation:
    """Why memory ran out: what had the size, when, and what broke."""

    summary: str = ""
    figures: OutOfMemory | None = None
    matches: tuple[OomMatch, ...] = ()
    causes: tuple[OomCause, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Collective:
    """One kind of collective in an optimizer step, on one rank."""

    name: str
    kind: CollectiveKind = CollectiveKind.UNSPECIFIED
    axis: str = ""
    count: int = 0
    bytes_per_rank: int = 0
    formula: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FittingChange:
    """A change, or two together, with which the run fits, and what it costs."""

    change: str
    delta_bytes: int = 0
    limited: Interval = Interval()
    extra_ns: int = 0
    extra_sent_bytes: int = 0
    extra_gpus: int = 0
    cost: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Residual:
    """A measured figure beside the expected one."""

    phase: str = ""
    rank: int = 0
    kind: MeasuredBytes = MeasuredBytes.UNSPECIFIED
    measured_bytes: int = 0
    estimated: Interval = Interval()
    residual_bytes: int = 0
    position: ResidualPosition = ResidualPosition.UNSPECIFIED
