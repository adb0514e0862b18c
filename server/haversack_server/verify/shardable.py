"""Which sharded jobs can run: what is asked beside what a job of one process asks."""

from haversack.errors import InvalidRequestError, Violation, check
from haversack.parallelism import Parallelism, Sharding
from haversack.spread import spread_of
from haversack.verify import VerifyRequest, VerifySchedule, VerifyWorld

WORLD_SIZES = (2, 4)
SHARDINGS = (Sharding.UNSPECIFIED, Sharding.REPLICATED, Sharding.FSDP2)
SHARDING_WORDS = {
    Sharding.REPLICATED: "DistributedDataParallel",
    Sharding.FSDP2: "fully_shard",
}


def gpu_count(request: VerifyRequest) -> int:
    """Count the GPUs of a job on GPUs: one for each rank, or what its one process asks for."""
    ranks = 1 if request.world is None else request.world.size
    return max(ranks, request.device_count or 1)


def devices_of(device: str, gpus: int) -> tuple[str, ...]:
    """Name the devices of a job: as many GPUs, from the one that is asked for on; or the CPU."""
    if not device.startswith("cuda"):
        return (device or "cpu",)
    first = int(device.partition(":")[2])
    return tuple(f"cuda:{first + place}" for place in range(gpus))


def as_planned(request: VerifyRequest) -> Parallelism | None:
    """Give how the ranks of a job's plan share the model, where the job has as many that do so."""
    plan, world = request.plan, request.world
    if plan is None or plan.parallelism is None or world is None:
        return None
    planned = spread_of(plan.parallelism)
    sharding = Sharding.REPLICATED if planned.is_replicated else Sharding.FSDP2
    is_same = (planned.ranks, sharding) == (world.size, world.sharding or Sharding.REPLICATED)
    return plan.parallelism if is_same else None


def check_device_count(request: VerifyRequest) -> None:
    """Raise the error that says why one process cannot have several GPUs in this job."""
    if (request.device_count or 1) == 1:
        return
    why = _needs_one_device(request)
    if why:
        raise InvalidRequestError(why, field="device_count")


def _needs_one_device(request: VerifyRequest) -> str:
    if not request.device.startswith("cuda"):
        return "several devices of one process are GPUs; say from which on, such as device cuda:0"
    if request.world is not None and request.world.size > 1:
        return "each rank has a GPU of its own; leave it out, the number of ranks says how many"
    if request.plan is not None:
        return "a plan is of one device; verify it on one, and leave this out"
    return ""


def check_sharded(request: VerifyRequest, world: VerifyWorld) -> None:
    """Raise the error that says why a job of several ranks cannot run here."""
    found: list[Violation] = []
    if world.size not in WORLD_SIZES:
        sentence = f"{world.size} ranks are not run; 2 or 4 would do"
        found.append(Violation("world.size", sentence))
    if world.sharding not in SHARDINGS:
        sentence = f"{world.sharding.name} cannot be verified; REPLICATED (DDP) or FSDP2 would do"
        found.append(Violation("world.sharding", sentence))
    check(found)
    if request.schedule is VerifySchedule.BACKWARD_IN_THREAD:
        raise InvalidRequestError(
            "a helper thread is of one process; ranks take ONE_MICROBATCH, TWO_MICROBATCHES or "
            "TWO_STEPS",
            field="schedule",
        )
