"""Which resume jobs can run, and what one of them does: its ranks, its form, its steps.

Knows the request alone; what a workload is, its job finds out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from haversack.errors import InvalidRequestError, NotSupportedError, Violation, check
from haversack.parallelism import Sharding
from haversack.verify import (
    TrainingCheckpoint,
    VerifyRequest,
    VerifyResume,
    VerifySchedule,
    VerifyWorld,
)
from haversack_server.verify.shardable import SHARDINGS

SIZES = (1, 2, 4)
_STEPS = 3
_SCHEDULES = (VerifySchedule.UNSPECIFIED, VerifySchedule.ONE_MICROBATCH)
# What is said of activation checkpoints says nothing of a training checkpoint: fields, and what
# they are where nothing is said.
_OF_ACTIVATIONS: Mapping[str, object] = {
    "regions": (),
    "plan": None,
    "use_reentrant": False,
    "early_stop": None,
    "preserve_rng_state": None,
    "determinism_check": "",
}


@dataclass(frozen=True, slots=True)
class Resume:
    """A resume job, with all that a request leaves open."""

    saved_size: int
    resumed_size: int
    sharding: Sharding
    saved_as: TrainingCheckpoint
    steps_before: int
    steps_after: int
    leave_out_each: bool = False

    @property
    def same_ranks(self) -> bool:
        """Whether as many ranks go on as saved."""
        return self.saved_size == self.resumed_size


def resume_of(resume: VerifyResume, world: VerifyWorld) -> Resume:
    """Take the usual values for what a request leaves open."""
    return Resume(
        saved_size=world.size,
        resumed_size=resume.size or world.size,
        sharding=world.sharding or Sharding.REPLICATED,
        saved_as=resume.saved_as or TrainingCheckpoint.SHARDED,
        steps_before=resume.steps_before or _STEPS,
        steps_after=resume.steps_after or _STEPS,
        leave_out_each=resume.leave_out_each,
    )


def most_ranks(request: VerifyRequest) -> int:
    """Count the ranks of a job's largest run."""
    saving = request.world.size if request.world is not None else 1
    return max(saving, request.resume.size or 1) if request.resume is not None else saving


def check_resumable(request: VerifyRequest, resume: VerifyResume) -> None:
    """Raise the error that says why a resume job cannot run here."""
    world = request.world
    if world is None:
        raise InvalidRequestError(
            "a resume job saves on several ranks; say how many, and whether DDP or FSDP2",
            field="world",
        )
    check(_violations(request, resume, world))
    if request.device.startswith("cuda"):
        raise NotSupportedError(
            "device: ranks of a resume job run on the CPU over gloo; leave it out"
        )


def _violations(
    request: VerifyRequest, resume: VerifyResume, world: VerifyWorld
) -> list[Violation]:
    found: list[Violation] = []
    for field, size in (("world.size", world.size), ("resume.size", resume.size or world.size)):
        if size not in SIZES:
            found.append(Violation(field, f"{size} ranks are not run; 1, 2 or 4 would do"))
    if world.sharding not in SHARDINGS:
        sentence = f"{world.sharding.name} is not resumed; REPLICATED (DDP) or FSDP2 would do"
        found.append(Violation("world.sharding", sentence))
    if request.schedule not in _SCHEDULES:
        sentence = f"a resume job takes whole steps, not {request.schedule.name}; leave it out"
        found.append(Violation("schedule", sentence))
    for field, unsaid in _OF_ACTIVATIONS.items():
        if getattr(request, field) != unsaid:
            sentence = "it is about activation checkpoints, and a resume job about files of a run"
            found.append(Violation(field, f"{sentence}; leave it out"))
    return found
