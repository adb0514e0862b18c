"""What a worker is asked for a plan, and what it answers: one workload, several questions.

First the workload's profile, then whole steps of it as a plan has them. Imports no torch and starts
no process; ``haversack_server.planner`` sends these, ``haversack_server.worker.planning`` answers.
"""

import enum
from dataclasses import dataclass, field

from haversack.errors import HaversackError, InvalidRequestError, NotSupportedError
from haversack.observed import Observed
from haversack.parallelism import Parallelism
from haversack.plan import Plan, PlanRequest
from haversack.profile import Profile
from haversack.run import BlockAction, NumberType, Optimizer, Precision, WorkloadReference


class Fault(enum.Enum):
    """Whose fault it is that there is no answer."""

    WORKLOAD = "workload"  # it cannot be built, or raises
    UNSUPPORTED = "unsupported"
    MEMORY = "memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why there is no answer, in a sentence; ``field`` where it is not the workload's."""

    fault: Fault
    message: str
    field: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a profile is: what is run now, and how many steps of all are done."""

    what: str
    done: int
    steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadOrder:
    """The workload that all that follows is about; ``optimizer`` is named in place of its own.

    ``blocks`` are names of its modules, or none for those that are found. ``precision`` is that of
    its step, where it is not the model's own.
    """

    workload: WorkloadReference
    allow: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    optimizer: Optimizer = Optimizer.UNSPECIFIED
    blocks: tuple[str, ...] = ()
    precision: Precision = Precision.UNSPECIFIED


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOrder:
    """A whole step to run, as a plan's actions have it."""

    actions: tuple[BlockAction, ...]
    microbatches: int = 1
    parallelism: Parallelism = field(default_factory=Parallelism)
    precision: Precision = Precision.UNSPECIFIED
    reduce_type: NumberType = NumberType.UNSPECIFIED

    @classmethod
    def of(cls, plan: Plan, request: PlanRequest) -> "StepOrder":
        """Ask for the step of a plan, as it was asked for."""
        return cls(
            actions=plan.actions,
            microbatches=request.training.accumulation or 1,
            parallelism=request.parallelism,
            precision=plan.precision,
            reduce_type=plan.reduce_type,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerAnswer:
    """A profile, what a step was seen to need, or why there is neither.

    ``progress`` comes before an answer that takes a while, as often as there is something to tell.
    """

    progress: Progress | None = None
    profile: Profile | None = None
    observed: Observed | None = None
    failure: Failure | None = None


def error_of(failure: Failure) -> HaversackError:
    """Turn a failure into the error that the caller sees."""
    if failure.fault is Fault.WORKLOAD:
        return InvalidRequestError(failure.message, field=failure.field or "workload")
    return NotSupportedError(f"workload: {failure.message}")
