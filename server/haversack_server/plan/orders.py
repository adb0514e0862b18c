"""What a worker is asked for a plan, and what it answers: one workload, several questions.

First the workload's profile, then whole steps of it as a plan has them. Imports no torch and starts
no process; ``haversack_server.planner`` sends these, ``haversack_server.worker.planning`` answers.
"""

import enum
from dataclasses import dataclass

from haversack.errors import HaversackError, InvalidRequestError, NotSupportedError
from haversack.observed import Observed
from haversack.plan import Plan
from haversack.profile import Profile
from haversack.run import BlockAction, Optimizer, WorkloadReference


class Fault(enum.Enum):
    """Whose fault it is that there is no answer."""

    WORKLOAD = "workload"  # it cannot be built, or raises
    UNSUPPORTED = "unsupported"
    MEMORY = "memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why there is no answer, in a sentence."""

    fault: Fault
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadOrder:
    """The workload that all that follows is about; ``optimizer`` is named in place of its own."""

    workload: WorkloadReference
    allow: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    optimizer: Optimizer = Optimizer.UNSPECIFIED


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOrder:
    """A whole step to run, as a plan's actions have it."""

    actions: tuple[BlockAction, ...]
    microbatches: int = 1

    @classmethod
    def of(cls, plan: Plan, microbatches: int) -> "StepOrder":
        """Ask for the step of a plan."""
        return cls(actions=plan.actions, microbatches=microbatches)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerAnswer:
    """A profile, what a step was seen to need, or why there is neither."""

    profile: Profile | None = None
    observed: Observed | None = None
    failure: Failure | None = None


def error_of(failure: Failure) -> HaversackError:
    """Turn a failure into the error that the caller sees."""
    if failure.fault is Fault.WORKLOAD:
        return InvalidRequestError(failure.message, field="workload")
    return NotSupportedError(f"workload: {failure.message}")
