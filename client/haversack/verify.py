"""Verify: does a run with activation checkpointing still compute the same?

The question, and the events of the job that answers it.

An activation checkpoint is a call of ``torch.utils.checkpoint``, never a file of weights. The
answer is in ``verify_report``; its names are given here too.
"""

import enum
import re
from dataclasses import dataclass

from haversack import checks
from haversack.errors import InvalidRequestError, Violation, check
from haversack.run import WorkloadReference
from haversack.strict_json import parse_object
from haversack.verify_applied import VerifyApplied
from haversack.verify_facets import Facet, FacetResult, FacetSeverity, FacetValue, VerifyWaiver
from haversack.verify_parts import VerifyLimits, VerifyPlan, VerifyWorld
from haversack.verify_report import (
    DifferenceCause,
    FailureReason,
    FirstDifference,
    RandomSource,
    RecomputeCount,
    SavedValues,
    StateChange,
    VerifyEnvironment,
    VerifyEvidence,
    VerifyFailure,
    VerifyMemory,
    VerifyReport,
    VerifySchedule,
    VerifyTime,
    VerifyVerdict,
)
from haversack.verify_resume import (
    LeftOutState,
    ResumedStep,
    TrainingCheckpoint,
    VerifyResume,
    VerifyResumed,
)
from haversack.verify_sharded import CollectiveCount, VerifyRank, VerifySharded

__all__ = [
    "CancelVerifyRequest",
    "CancelVerifyResponse",
    "CollectiveCount",
    "DifferenceCause",
    "Facet",
    "FacetResult",
    "FacetSeverity",
    "FacetValue",
    "FailureReason",
    "FirstDifference",
    "JobState",
    "LeftOutState",
    "ListWorkloadsRequest",
    "ListWorkloadsResponse",
    "RandomSource",
    "RecomputeCount",
    "ResumedStep",
    "SavedValues",
    "StateChange",
    "TrainingCheckpoint",
    "VerifyApplied",
    "VerifyEnvironment",
    "VerifyEvent",
    "VerifyEvidence",
    "VerifyFailure",
    "VerifyLimits",
    "VerifyMemory",
    "VerifyPlan",
    "VerifyProgress",
    "VerifyQueued",
    "VerifyRank",
    "VerifyReport",
    "VerifyRequest",
    "VerifyResume",
    "VerifyResumed",
    "VerifyRunning",
    "VerifySchedule",
    "VerifySharded",
    "VerifyTime",
    "VerifyVerdict",
    "VerifyWaiver",
    "VerifyWorld",
    "WorkloadInfo",
    "workload_violations",
]

_NO_LIMITS = VerifyLimits()
LARGEST_SEED = 2**32 - 1  # numpy takes no larger one
_WAIVABLE = tuple(facet for facet in Facet if facet)
_JOB_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_DEVICE = re.compile(r"cpu|cuda:\d{1,3}")
_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_ENTRY_POINT = re.compile(rf"{_DOTTED}:{_DOTTED}")


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyRequest:
    """Asks for one equivalence job."""

    job_id: str = ""
    workload: WorkloadReference
    seed: int = 0
    device: str = ""
    use_reentrant: bool = False
    early_stop: bool | None = None
    preserve_rng_state: bool | None = None
    determinism_check: str = ""
    waivers: tuple[Facet, ...] = ()
    strict: bool = False
    limits: VerifyLimits = _NO_LIMITS
    keep_after_disconnect: bool = False
    schedule: VerifySchedule = VerifySchedule.UNSPECIFIED
    threads: int | None = None
    deterministic_algorithms: bool = False
    regions: tuple[str, ...] = ()
    plan: VerifyPlan | None = None
    world: VerifyWorld | None = None
    resume: VerifyResume | None = None
    weights: str = ""
    device_count: int | None = None

    def __post_init__(self) -> None:
        found = workload_violations("workload", self.workload)
        if self.job_id:
            found += job_id_violations(self.job_id)
        found += checks.integer("seed", self.seed, most=LARGEST_SEED)
        found += checks.optional_integer("threads", self.threads, least=1, most=1024)
        found += checks.optional_integer("device_count", self.device_count, least=1, most=64)
        found += _device_violations(self.device)
        found += self._setting_violations()
        check(found)

    def _setting_violations(self) -> list[Violation]:
        found: list[Violation] = []
        if self.determinism_check not in ("", "default", "none"):
            asked = checks.shortly(self.determinism_check)
            sentence = f"{asked} is unknown to PyTorch; use default or none"
            found.append(Violation("determinism_check", sentence))
        for index, facet in enumerate(self.waivers):
            if facet not in _WAIVABLE:
                known = ", ".join(each.name for each in _WAIVABLE)
                sentence = f"{facet!r} is not a facet; use one of {known}"
                found.append(Violation(f"waivers[{index}]", sentence))
        if self.regions and self.plan is not None:
            found.append(Violation("regions", "give regions or a plan, not both"))
        if not all(self.regions):
            found.append(Violation("regions", "an empty name names no module"))
        if self.plan is not None:
            found += _plan_violations(self.plan)
        return found


def workload_violations(path: str, workload: WorkloadReference) -> list[Violation]:
    """Check that a workload is named in one way, and that its arguments are a JSON object."""
    name, entry_point = workload.name, workload.entry_point
    found: list[Violation] = []
    if bool(name) == bool(entry_point):
        sentence = "give the name of a built-in workload or an entry point, and not both"
        found.append(Violation(f"{path}.name", sentence))
    if entry_point and not _ENTRY_POINT.fullmatch(entry_point):
        sentence = f"{entry_point[:200]!r} is not of the form package.module:factory"
        found.append(Violation(f"{path}.entry_point", sentence))
    return found + _args_violations(f"{path}.args_json", workload.args_json)


def job_id_violations(job_id: object) -> list[Violation]:
    """Check the spelling of a job's id."""
    if isinstance(job_id, str) and _JOB_ID.fullmatch(job_id):
        return []
    sentence = (
        f"{checks.shortly(job_id)} is no id; use 1 to 128 of the characters A-Z a-z 0-9 . _ -"
    )
    return [Violation("job_id", sentence)]


def _plan_violations(plan: VerifyPlan) -> list[Violation]:
    """Check that a plan says of each block once how it runs."""
    found: list[Violation] = []
    known: set[str] = set()
    for index, action in enumerate(plan.actions):
        if action.block in known:
            sentence = f"the plan has {checks.shortly(action.block)} twice; a block runs in one way"
            found.append(Violation(f"plan.actions[{index}].block", sentence))
        known.add(action.block)
    return found


def _device_violations(device: object) -> list[Violation]:
    if isinstance(device, str) and (not device or _DEVICE.fullmatch(device)):
        return []
    return [
        Violation(
            "device", f"{checks.shortly(device)} is not a device; use cpu, or cuda:0 and so on"
        )
    ]


def _args_violations(path: str, args_json: str) -> list[Violation]:
    if not args_json:
        return []
    try:
        parse_object(args_json, field=path, example='{"layers": 2}')
    except InvalidRequestError as wrong:
        return list(wrong.violations)
    return []


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyQueued:
    """The job waits for its device."""

    device: str = ""
    position: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyRunning:
    """The job has its own process now."""

    device: str = ""
    deadline_ns: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyProgress:
    """A stage of the job ended."""

    stage: str = ""
    completed: int = 0
    total: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyEvent:
    """One event of a job's stream: the message ``VerifyResponse``."""

    job_id: str = ""
    elapsed_ns: int = 0
    queued: VerifyQueued | None = None
    running: VerifyRunning | None = None
    progress: VerifyProgress | None = None
    report: VerifyReport | None = None

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) is not None for name in _EVENTS}
        if sum(given.values()) != 1:
            named = [name for name, is_set in given.items() if is_set]
            sentence = f"an event is one of {', '.join(_EVENTS)}, not {named or 'none'}"
            check([Violation("event", sentence)])


_EVENTS = ("queued", "running", "progress", "report")


class JobState(enum.IntEnum):
    """Where a job stands."""

    UNSPECIFIED = 0
    QUEUED = 1
    RUNNING = 2
    FINISHED = 3
    CANCELLED = 4
    LOST = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelVerifyRequest:
    """Asks to stop a job."""

    job_id: str

    def __post_init__(self) -> None:
        check(job_id_violations(self.job_id))


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelVerifyResponse:
    """Where the job stands after the call."""

    state: JobState = JobState.UNSPECIFIED


@dataclass(frozen=True, kw_only=True, slots=True)
class ListWorkloadsRequest:
    """Asks for the built-in workloads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadInfo:
    """A built-in workload."""

    name: str
    category: str = ""
    description: str = ""
    expected_verdict: VerifyVerdict = VerifyVerdict.UNSPECIFIED
    expected_different: tuple[Facet, ...] = ()
    schedule: VerifySchedule = VerifySchedule.UNSPECIFIED
    resume: VerifyResume | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ListWorkloadsResponse:
    """The built-in workloads, in the order of their names."""

    workloads: tuple[WorkloadInfo, ...] = ()
