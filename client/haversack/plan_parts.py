"""What a plan is made of: its status, its rung, its figures, and what is put beside it."""

import enum
from dataclasses import dataclass

from haversack.basis import Basis
from haversack.run import Budget
from haversack.training import Optimizer


class PlanStatus(enum.IntEnum):
    """How good a plan is."""

    UNSPECIFIED = 0
    OPTIMAL = 1
    FEASIBLE = 2
    INFEASIBLE = 3


class Rung(enum.IntEnum):
    """The step of the ladder that answered."""

    UNSPECIFIED = 0
    FLOOR = 1
    INDEPENDENT = 2
    CEILING = 3
    SEGMENTS = 4
    GRAPH = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetConversion:
    """The budget as it was used: what was given, and what it leaves for allocated bytes."""

    given: Budget | None = None
    allocated_bytes: int = 0
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class PeakAt:
    """Where a peak is, and its largest terms."""

    block: str = ""
    phase: str = ""
    moment: str = ""
    largest_terms: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MomentPeak:
    """The highest allocated bytes while one block runs in one phase; the optimizer has no block."""

    phase: str
    block: str = ""
    peak_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifiedPhase:
    """One phase of a step, as predicted and as observed; 0 where nothing was predicted."""

    phase: str
    predicted_bytes: int = 0
    observed_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """The planned step run as one whole, beside the prediction."""

    basis: Basis = Basis.UNSPECIFIED
    observed_peak_bytes: int = 0
    observed_at: PeakAt | None = None
    replanned: bool = False
    holds: bool = False
    phases: tuple[CertifiedPhase, ...] = ()
    findings: tuple[str, ...] = ()
    method: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanWhatIfAnswer:
    """The answer to one variation."""

    name: str
    status: PlanStatus = PlanStatus.UNSPECIFIED
    extra_ns: int = 0
    predicted_peak_bytes: int | None = None
    floor_bytes: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontierPoint:
    """What a budget buys."""

    budget_bytes: int
    peak_bytes: int
    cost: int
    saved_count: int
    proven: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontierReading:
    """What the next bytes of budget buy, read off the frontier."""

    knee_budget_bytes: int | None = None
    knee_cost: int = 0
    next_gib_spares_ns: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """A well-known way to choose, beside the plan."""

    name: str
    peak_bytes: int
    fits: bool = False
    extra_ns: int = 0
    saved_count: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlan:
    """The plan of one class of equal ranks."""

    name: str
    first_rank: int = 0
    rank_count: int = 1
    status: PlanStatus = PlanStatus.UNSPECIFIED
    predicted_peak_bytes: int | None = None
    peak_at: PeakAt | None = None
    floor_bytes: int = 0
    extra_ns: int = 0
    lower_bound: int = 0
    recomputed_count: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SolvedBy:
    """Which algorithm, type of cell and device solved a plan, and why."""

    algorithm: str
    cells: str = ""
    device: str = "cpu"
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedStep:
    """What a profile's plan counts in the step whose peak it predicts."""

    optimizer: Optimizer = Optimizer.UNSPECIFIED
    optimizer_class: str = ""
    optimizer_state_bytes: int = 0
    parameter_bytes: int = 0
    gradient_bytes: int = 0
    standing_bytes: int = 0
    loss: str = ""
    microbatches: int = 1
    device: str = ""
    timed_on: str = ""
