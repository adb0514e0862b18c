"""Plan: what to save and what to recompute under a budget. The question, and the answer."""

from dataclasses import dataclass

from haversack import checks
from haversack.basis import Basis
from haversack.errors import Violation, check
from haversack.parallelism import Parallelism
from haversack.plan_parts import (
    Baseline,
    BudgetConversion,
    Certificate,
    CertifiedPhase,
    CountedStep,
    FrontierPoint,
    FrontierReading,
    MomentPeak,
    PeakAt,
    PlanStatus,
    PlanWhatIfAnswer,
    RankPlan,
    Rung,
    SolvedBy,
)
from haversack.profile import Profile
from haversack.run import (
    Advice,
    BlockAction,
    Budget,
    BytesKind,
    Device,
    Measurement,
    NumberType,
    Precision,
    Recompute,
    Training,
    TrainingRun,
)
from haversack.verify import workload_violations

__all__ = [
    "MOST_CANDIDATES",
    "MOST_GRAPH_NS",
    "MOST_WHAT_IFS",
    "Baseline",
    "BudgetConversion",
    "Candidates",
    "Certificate",
    "CertifiedPhase",
    "CountedStep",
    "FrontierPoint",
    "FrontierReading",
    "MomentPeak",
    "PeakAt",
    "Plan",
    "PlanConstraints",
    "PlanRequest",
    "PlanStatus",
    "PlanWhatIf",
    "PlanWhatIfAnswer",
    "RankPlan",
    "RecomputeCandidates",
    "Rung",
    "SolvedBy",
]

MOST_CANDIDATES = 1_000_000
MOST_WHAT_IFS = 64
MOST_GRAPH_NS = 3_600 * 10**9


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """Activations that may be saved, as columns; numpy arrays of integers will do."""

    size_bytes: tuple[int, ...]
    gain: tuple[int, ...]
    names: tuple[str, ...] = ()
    fixed_bytes: int = 0

    def __post_init__(self) -> None:
        for name in ("size_bytes", "gain"):
            column = checks.column_of_ints(getattr(self, name), f"candidates.{name}")
            object.__setattr__(self, name, column)
        found = _columns("candidates", size_bytes=self.size_bytes, gain=self.gain, names=self.names)
        found += checks.column("candidates.size_bytes", self.size_bytes, least=1)
        found += checks.column("candidates.gain", self.gain)
        found += checks.integer("candidates.fixed_bytes", self.fixed_bytes)
        check(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecomputeCandidates:
    """Saved activations that may be recomputed instead, as columns: the mirror form."""

    freed_bytes: tuple[int, ...]
    added_ns: tuple[int, ...]
    names: tuple[str, ...] = ()
    used_bytes: int | None = None

    def __post_init__(self) -> None:
        path = "recompute_candidates"
        for name in ("freed_bytes", "added_ns"):
            column = checks.column_of_ints(getattr(self, name), f"{path}.{name}")
            object.__setattr__(self, name, column)
        columns = {"freed_bytes": self.freed_bytes, "added_ns": self.added_ns}
        found = _columns(path, **columns, names=self.names)
        found += checks.column(f"{path}.freed_bytes", self.freed_bytes, least=1)
        found += checks.column(f"{path}.added_ns", self.added_ns)
        found += checks.optional_integer(f"{path}.used_bytes", self.used_bytes)
        check(found)
        if self.used_bytes is not None and self.used_bytes < sum(self.freed_bytes):
            sentence = (
                f"{self.used_bytes} is less than the {sum(self.freed_bytes)} that can be freed"
            )
            check([Violation(f"{path}.used_bytes", sentence)])


def _columns(path: str, **columns: tuple[object, ...]) -> list[Violation]:
    lengths = {name: len(values) for name, values in columns.items() if values or name != "names"}
    found = checks.equal_lengths(path, lengths)
    longest = max(lengths.values())
    if longest > MOST_CANDIDATES:
        sentence = f"{longest} candidates are too many; at most {MOST_CANDIDATES} would do"
        found.append(Violation(path, sentence))
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanConstraints:
    """What a model's plan must and must not do; blocks are named as the timeline spells them."""

    must_save: tuple[str, ...] = ()
    must_recompute: tuple[str, ...] = ()
    equal_treatment: bool = False
    without_segments: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanWhatIf:
    """A variation: what is set replaces the request's own, field by field."""

    name: str
    training: Training | None = None
    parallelism: Parallelism | None = None
    device: Device | None = None
    budget: Budget | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest(TrainingRun):
    """Asks what to save and what to recompute under a budget."""

    candidates: Candidates | None = None
    recompute_candidates: RecomputeCandidates | None = None
    fit_expected: bool = False
    frontier_points: int | None = None
    state_limit: int | None = None
    constraints: PlanConstraints | None = None
    measurements: tuple[Measurement, ...] = ()
    what_ifs: tuple[PlanWhatIf, ...] = ()
    rank: int | None = None
    graph_ns: int | None = None
    blocks: tuple[str, ...] = ()

    def subjects(self) -> dict[str, bool]:
        """Which subjects are set, by the name of their field."""
        return {
            # Named, since a dataclass with slots is made anew and super() without names is lost.
            **TrainingRun.subjects(self),
            "candidates": self.candidates is not None,
            "recompute_candidates": self.recompute_candidates is not None,
        }

    def __post_init__(self) -> None:
        found = self.violations()
        found += checks.optional_integer("frontier_points", self.frontier_points, most=64)
        most_states = 2**28  # 16 bytes each
        found += checks.optional_integer("state_limit", self.state_limit, least=1, most=most_states)
        found += checks.optional_integer("rank", self.rank)
        found += checks.optional_integer("graph_ns", self.graph_ns, least=1, most=MOST_GRAPH_NS)
        if self.training.actions or self.training.recompute is not Recompute.UNSPECIFIED:
            sentence = "a plan chooses what is recomputed; leave recompute and actions out"
            found.append(Violation("training.recompute", sentence))
        if self.workload is not None:
            found += workload_violations("workload", self.workload)
        elif self.blocks:
            sentence = "only code has modules to name; give a workload, or leave them out"
            found.append(Violation("blocks", sentence))
        if len(self.what_ifs) > MOST_WHAT_IFS:
            sentence = f"{len(self.what_ifs)} variations are too many; at most {MOST_WHAT_IFS}"
            found.append(Violation("what_ifs", sentence))
        independent = self.candidates is not None or self.recompute_candidates is not None
        if independent and self.budget is None:
            found.append(Violation("budget", "candidates need a budget in bytes"))
        if independent and self.budget and self.budget.kind is BytesKind.DEVICE:
            sentence = "device bytes need a model to be converted; give candidates allocated bytes"
            found.append(Violation("budget.kind", sentence))
        check(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to save and what to recompute, with its certificate."""

    status: PlanStatus = PlanStatus.UNSPECIFIED
    saved: tuple[int, ...] = ()
    actions: tuple[BlockAction, ...] = ()
    total_gain: int = 0
    total_size_bytes: int = 0
    extra_ns: int = 0
    extra_share: float | None = None
    budget: BudgetConversion | None = None
    predicted_peak_bytes: int | None = None
    peak_at: PeakAt | None = None
    floor_bytes: int = 0
    floor_at: PeakAt | None = None
    relief: tuple[Advice, ...] = ()
    lower_bound: int = 0
    gap: int = 0
    solver: str = ""
    rung: Rung = Rung.UNSPECIFIED
    basis: Basis = Basis.UNSPECIFIED
    frontier: tuple[FrontierPoint, ...] = ()
    assumptions: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    ignored_inputs: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = ()
    request_digest: str = ""
    model_version: str = ""
    reason: str = ""
    certificate: Certificate | None = None
    what_ifs: tuple[PlanWhatIfAnswer, ...] = ()
    solved_by: SolvedBy | None = None
    baselines: tuple[Baseline, ...] = ()
    reading: FrontierReading | None = None
    ranks: tuple[RankPlan, ...] = ()
    equal_treatment_ns: int | None = None
    moments: tuple[MomentPeak, ...] = ()
    profile: Profile | None = None
    model_fingerprint: str = ""
    parallelism: Parallelism | None = None
    counted: CountedStep | None = None
    precision: Precision = Precision.UNSPECIFIED
    reduce_type: NumberType = NumberType.UNSPECIFIED
