"""Estimate: what a training run needs on each rank. The question, and the answer."""

import enum
from dataclasses import dataclass

from haversack.basis import Basis
from haversack.errors import Violation, check
from haversack.evidence import Evidence
from haversack.parallelism import Parallelism
from haversack.questions import (
    Collective,
    EstimateQuestion,
    FittingChange,
    OomExplanation,
    OutOfMemory,
    Residual,
)
from haversack.run import Advice, Device, Interval, Measurement, Training, TrainingRun
from haversack.trace import Trace


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIf:
    """A variation: what is set replaces the request's own, field by field."""

    name: str
    training: Training | None = None
    parallelism: Parallelism | None = None
    device: Device | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EstimateRequest(TrainingRun):
    """Asks what a training run needs on each rank."""

    measurements: tuple[Measurement, ...] = ()
    what_ifs: tuple[WhatIf, ...] = ()
    questions: tuple[EstimateQuestion, ...] = ()
    oom: OutOfMemory | None = None

    def __post_init__(self) -> None:
        found = self.violations() + _question_violations(self.questions)
        if len(self.what_ifs) > MOST_WHAT_IFS:
            sentence = f"{len(self.what_ifs)} variations are too many; at most {MOST_WHAT_IFS}"
            found.append(Violation("what_ifs", sentence))
        check(found)


MOST_WHAT_IFS = 256


def _question_violations(questions: tuple[EstimateQuestion, ...]) -> list[Violation]:
    """Check that every question says what, and that the brief answer stands alone."""
    found = [
        Violation(f"questions[{place}]", f"say what: one of {', '.join(_QUESTIONS)}")
        for place, question in enumerate(questions)
        if question is EstimateQuestion.UNSPECIFIED
    ]
    if EstimateQuestion.BRIEF in questions and len(set(questions)) > 1:
        sentence = "BRIEF leaves every other question out; give it alone, or leave it out"
        found.append(Violation("questions", sentence))
    return found


_QUESTIONS = [question.name for question in EstimateQuestion if question]


class EstimateVerdict(enum.IntEnum):
    """Whether the run fits; UNSPECIFIED where no limit was given."""

    UNSPECIFIED = 0
    FITS = 1
    TIGHT = 2
    DOES_NOT_FIT = 3
    UNKNOWN = 4


class ReasonCode(enum.IntEnum):
    """Why the verdict is what it is, for programs."""

    UNSPECIFIED = 0
    WITHIN_LIMIT = 1
    STATES_ABOVE_LIMIT = 2
    PEAK_ABOVE_LIMIT = 3
    WITHIN_MARGIN = 4
    ONLY_STATES_KNOWN = 5
    SETTING_NOT_MODELLED = 6


class TermCategory(enum.IntEnum):
    """What a term of the ledger is."""

    UNSPECIFIED = 0
    PARAMETER = 1
    GRADIENT = 2
    OPTIMIZER = 3
    ACTIVATION = 4
    TRANSIENT = 5
    OUTSIDE = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One line of the ledger; ``bytes`` are those at the peak, and sum to it."""

    name: str
    category: TermCategory
    bytes: int = 0
    largest_bytes: int = 0
    formula: str = ""
    inputs: tuple[str, ...] = ()
    source: str = ""
    scales_with: tuple[str, ...] = ()
    sharded_over: tuple[str, ...] = ()
    gathered_in: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Peak:
    """The highest bytes of a rank: live tensors, the allocator, outside it, the device."""

    allocated: Interval = Interval()
    reserved: Interval = Interval()
    outside: Interval = Interval()
    device: Interval = Interval()


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """A stretch of the step, with its highest moment."""

    name: str
    peak_bytes: int
    peak_moment: str
    reserved_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """One moment of the timeline; ``term_bytes`` follow the order of the answer's terms."""

    phase: str
    name: str
    allocated_bytes: int = 0
    term_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RankClass:
    """Ranks that need the same; equal ranks are grouped, never averaged."""

    name: str
    first_rank: int = 0
    rank_count: int = 1
    steady_bytes: int = 0
    peak: Peak | None = None
    peak_phase: str = ""
    peak_moment: str = ""
    between_steps_bytes: int = 0
    host_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class HostMemory:
    """What a run keeps in the memory of its hosts: for a rank of the fullest class, and a node."""

    rank_bytes: int = 0
    pinned_bytes: int = 0
    ranks_per_node: int = 1
    node_bytes: int = 0
    terms: tuple[Term, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIfAnswer:
    """The answer to one variation."""

    name: str
    verdict: EstimateVerdict = EstimateVerdict.UNSPECIFIED
    reason_code: ReasonCode = ReasonCode.UNSPECIFIED
    peak: Peak | None = None
    peak_phase: str = ""
    delta_bytes: int | None = None
    reason: str = ""
    not_modelled: tuple[str, ...] = ()
    collectives: tuple[Collective, ...] = ()
    recompute_ns: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """An estimate scaled to what was measured; ``stands_on`` says what that was."""

    peak: Peak | None = None
    verdict: EstimateVerdict = EstimateVerdict.UNSPECIFIED
    scale_ppm: int = 0
    stands_on: str = ""
    basis: Basis = Basis.UNSPECIFIED


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What a training run needs on each rank; ``steady_bytes`` are model states, not a peak."""

    verdict: EstimateVerdict = EstimateVerdict.UNSPECIFIED
    reason_code: ReasonCode = ReasonCode.UNSPECIFIED
    reason: str = ""
    peak: Peak | None = None
    peak_phase: str = ""
    peak_moment: str = ""
    peak_rank: int = 0
    steady_bytes: int = 0
    phases: tuple[Phase, ...] = ()
    timeline: tuple[Moment, ...] = ()
    terms: tuple[Term, ...] = ()
    ranks: tuple[RankClass, ...] = ()
    advice: tuple[Advice, ...] = ()
    min_gpus: int | None = None
    max_microbatch: int | None = None
    assumptions: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    ignored_inputs: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = ()
    request_digest: str = ""
    model_version: str = ""
    basis: Basis = Basis.UNSPECIFIED
    what_ifs: tuple[WhatIfAnswer, ...] = ()
    max_seq: int | None = None
    fitting_changes: tuple[FittingChange, ...] = ()
    searches: tuple[str, ...] = ()
    collectives: tuple[Collective, ...] = ()
    recompute_ns: int | None = None
    oom: OomExplanation | None = None
    residuals: tuple[Residual, ...] = ()
    calibration: Calibration | None = None
    evidence: tuple[Evidence, ...] = ()
    trace: Trace | None = None
    host: HostMemory | None = None
    not_validated: tuple[str, ...] = ()
