"""Which sharded jobs can run: what is asked beside what a job of one process asks."""

from haversack.errors import InvalidRequestError, Violation, check
from haversack.parallelism import Sharding
from haversack.verify import VerifyRequest, VerifySchedule, VerifyWorld

WORLD_SIZES = (2, 4)
_SHARDINGS = (Sharding.UNSPECIFIED, Sharding.REPLICATED, Sharding.FSDP2)


def devices_of(device: str, ranks: int) -> tuple[str, ...]:
    """Name the devices of a job: a GPU for each rank, from the one that is asked for on."""
    if not device.startswith("cuda"):
        return (device or "cpu",)
    first = int(device.partition(":")[2])
    return tuple(f"cuda:{first + rank}" for rank in range(ranks))


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
    if request.schedule is VerifySchedule.BACKWARD_IN_THREAD:
        raise InvalidRequestError(
            "a helper thread is of one process; ranks take ONE_MICROBATCH, TWO_MICROBATCHES or "
            "TWO_STEPS",
            field="schedule",
        )
