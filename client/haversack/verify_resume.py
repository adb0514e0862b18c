"""Resume jobs of Verify: training stopped, saved to disk, and gone on with, perhaps on other ranks.

What is saved here is a training checkpoint: files from which a run goes on. An activation
checkpoint (a call of ``torch.utils.checkpoint``) is another thing, and no part of these jobs. What
each field means is said once, in ``verify.proto``.
"""

import enum
from dataclasses import dataclass

from haversack import checks
from haversack.errors import check
from haversack.verify_facets import Facet, FacetValue

MOST_STEPS = 100


class TrainingCheckpoint(enum.IntEnum):
    """Form of the files that a run goes on from."""

    UNSPECIFIED = 0
    SHARDED = 1
    FULL = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyResume:
    """How a run is stopped, saved and gone on with."""

    size: int | None = None
    saved_as: TrainingCheckpoint = TrainingCheckpoint.UNSPECIFIED
    steps_before: int | None = None
    steps_after: int | None = None
    leave_out_each: bool = False

    def __post_init__(self) -> None:
        found = checks.optional_integer("resume.size", self.size, least=1, most=2**16)
        for name in ("steps_before", "steps_after"):
            value = getattr(self, name)
            found += checks.optional_integer(f"resume.{name}", value, least=1, most=MOST_STEPS)
        check(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumedStep:
    """A step after the stop, in the run that was not stopped and in the one that goes on."""

    step: int = 0
    uninterrupted_loss: float | None = None
    resumed_loss: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOutState:
    """A kind of state that was left out when the files were read, and what that changes."""

    facet: Facet
    value: FacetValue = FacetValue.UNSPECIFIED
    next_steps: FacetValue = FacetValue.UNSPECIFIED


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyResumed:
    """How a run was stopped, what its files hold, and the steps after it."""

    saved_size: int = 0
    resumed_size: int = 0
    saved_as: TrainingCheckpoint = TrainingCheckpoint.UNSPECIFIED
    steps_before: int = 0
    steps_after: int = 0
    checkpoint_bytes: int = 0
    kept: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    steps: tuple[ResumedStep, ...] = ()
    left_out: tuple[LeftOutState, ...] = ()
