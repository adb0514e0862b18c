"""What a Verify job answers: a verdict, and the evidence for each facet of it.

Plain records; what each field means is said once, in ``verify.proto``.
"""

import enum
from dataclasses import dataclass

from haversack.verify_applied import VerifyApplied
from haversack.verify_devices import VerifyDevice
from haversack.verify_facets import Facet, FacetResult, VerifyWaiver
from haversack.verify_resume import VerifyResumed
from haversack.verify_sharded import VerifySharded


class VerifyVerdict(enum.IntEnum):
    """The answer in one word."""

    UNSPECIFIED = 0
    EQUIVALENT = 1
    DIFFERENT = 2
    INCONCLUSIVE = 3
    FAILED = 4


class VerifySchedule(enum.IntEnum):
    """Order of forwards and backwards in a run."""

    UNSPECIFIED = 0
    ONE_MICROBATCH = 1
    TWO_MICROBATCHES = 2
    TWO_STEPS = 3
    BACKWARD_IN_THREAD = 4


class DifferenceCause(enum.IntEnum):
    """Class of the first difference between a region's forward and its replay."""

    UNSPECIFIED = 0
    CONTROL_FLOW = 1
    SCALAR_ARGUMENT = 2
    EXTERNAL_TENSOR = 3
    SHAPE = 4
    RNG = 5
    RNG_GENERATOR = 6
    NONDETERMINISTIC_KERNEL = 7
    MISSING_OPERATIONS = 8
    EXTRA_OPERATIONS = 9
    STATE_ONLY = 10


class FailureReason(enum.IntEnum):
    """Why there is no comparison."""

    UNSPECIFIED = 0
    WORKLOAD_RAISED = 1
    BAD_WORKLOAD = 2
    WORKER_LOST = 3
    DEADLINE = 4
    OUT_OF_MEMORY = 5
    CANCELLED = 6
    DEVICE_FAULT = 7
    WORKER_NOT_STARTED = 8
    SERVER_RESTARTED = 9
    RANK_LOST = 10
    OUT_OF_DISK = 11


@dataclass(frozen=True, kw_only=True, slots=True)
class RecomputeCount:
    """How often one region was entered and left."""

    region: str
    plain_entries: int = 0
    entries: int = 0
    completions: int = 0
    expected_entries: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RandomSource:
    """A source of random numbers, and who drew from it inside regions."""

    source: str
    drawn_in_forward: bool = False
    drawn_in_replay: bool = False
    restored: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedValues:
    """What a region saved for backward, and whether its replays saved the same bit for bit."""

    region: str
    saved_count: int = 0
    compared_count: int = 0
    different_count: int = 0
    first_different: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateChange:
    """A thing that a region reaches, and that a replay did not find or leave as its forward did."""

    region: str
    name: str
    by_replay: bool = False
    before: str = ""
    after: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstDifference:
    """The first place where a replay differs from its forward."""

    region: str
    module: str = ""
    operation: str = ""
    file: str = ""
    line: int = 0
    cause: DifferenceCause = DifferenceCause.UNSPECIFIED
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyMemory:
    """Memory of the step."""

    plain_peak_bytes: int = 0
    checkpointed_peak_bytes: int = 0
    plain_retained_bytes: int = 0
    checkpointed_retained_bytes: int = 0
    predicted_peak_bytes: int | None = None
    method: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyTime:
    """Time of the step."""

    plain_ns: int = 0
    checkpointed_ns: int = 0
    method: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyEnvironment:
    """Where the job really ran."""

    torch: str = ""
    python: str = ""
    numpy: str = ""
    platform: str = ""
    device: str = ""
    device_name: str = ""
    threads: int = 0
    deterministic_algorithms: bool = False
    default_dtype: str = ""
    executor: str = ""
    world_size: int = 0
    backend: str = ""
    isolation: tuple[str, ...] = ()
    gpus: tuple[VerifyDevice, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyEvidence:
    """What the report is evidence for."""

    proves: tuple[str, ...] = ()
    does_not_prove: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyFailure:
    """Why there is no comparison, and what is known."""

    reason: FailureReason
    message: str = ""
    exit_status: int | None = None
    stderr_tail: str = ""
    stage: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyReport:
    """The answer of a job."""

    job_id: str = ""
    workload: str = ""
    args_json: str = ""
    verdict: VerifyVerdict = VerifyVerdict.UNSPECIFIED
    warnings: tuple[str, ...] = ()
    facets: tuple[FacetResult, ...] = ()
    waivers: tuple[VerifyWaiver, ...] = ()
    recompute_counts: tuple[RecomputeCount, ...] = ()
    random_sources: tuple[RandomSource, ...] = ()
    first_difference: FirstDifference | None = None
    memory: VerifyMemory | None = None
    time: VerifyTime | None = None
    environment: VerifyEnvironment | None = None
    pinned: tuple[str, ...] = ()
    evidence: VerifyEvidence | None = None
    failure: VerifyFailure | None = None
    loss: str = ""
    assumptions: tuple[str, ...] = ()
    seed: int = 0
    schedule: VerifySchedule = VerifySchedule.UNSPECIFIED
    saved_values: tuple[SavedValues, ...] = ()
    state_changes: tuple[StateChange, ...] = ()
    sharded: VerifySharded | None = None
    applied: VerifyApplied | None = None
    resumed: VerifyResumed | None = None

    def facet(self, facet: Facet) -> FacetResult:
        """Look up what was found for one facet; KeyError if the job failed before it."""
        for result in self.facets:
            if result.facet is facet:
                return result
        raise KeyError(facet.name)
