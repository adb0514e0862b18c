"""Which sharded jobs can run: what is asked beside what a job of one process asks."""

from haversack.errors import InvalidRequestError, NotSupportedError, Violation, check
from haversack.parallelism import Sharding
from haversack.verify import VerifyRequest, VerifySchedule, VerifyWorld

WORLD_SIZES = (2, 4)
_SHARDINGS = (Sharding.UNSPECIFIED, Sharding.REPLICATED, Sharding.FSDP2)
_SCHEDULES = (VerifySchedule.UNSPECIFIED, VerifySchedule.ONE_MICROBATCH)


def check_sharded(request: VerifyRequest, world: VerifyWorld) -> None:
    """Raise the error that says why a job of several ranks cannot run here."""
    found: list[Violation] = []
    if world.size not in WORLD_SIZES:
        sentence = f"{world.size} ranks are not run; 2 or 4 would do"
        found.append(Violation("world.size", sentence))
    if world.sharding not in _SHARDINGS:
        sentence = f"{world.sharding.name} cannot be verified; REPLICATED (DDP) or FSDP2 would do"
        found.append(Violation("world.sharding", sentence))
    check(found)
    if request.schedule not in _SCHEDULES:
        raise InvalidRequestError(
            f"ranks run one forward and its backward, not {request.schedule.name}; ONE_MICROBATCH "
            "would do",
            field="schedule",
        )
    if request.device.startswith("cuda"):
        raise NotSupportedError(
            "ranks of a job run on the CPU over gloo; leave device out, and see "
            "docs/verify-multi-gpu.md for what to run on GPUs"
        )
