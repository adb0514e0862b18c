"""Parts of a Verify request from what people write: a plan, ranks, seconds."""

from os import PathLike
from typing import Any

from haversack import checks, spelling
from haversack.answer_files import read_plan
from haversack.parallelism import Sharding
from haversack.plan import Plan
from haversack.reading import refuse
from haversack.verify import VerifyPlan, VerifyWorld

_SHARDINGS = {"ddp": Sharding.REPLICATED, "fsdp2": Sharding.FSDP2}


def world_of(
    shard: Sharding | str | None, world_size: int | None, *, least: int = 2
) -> VerifyWorld | None:
    """Take the ranks of a sharded job; None is one process. ``least`` is 1 for one that resumes."""
    if shard is None and world_size is None:
        return None
    if shard is None:
        refuse("say how the ranks share the model: ddp or fsdp2", "world.sharding")
    if world_size is None:
        refuse("say how many ranks there are: 2 or 4", "world.size")
    world = VerifyWorld(size=checks.plain(world_size), sharding=sharding_of(shard))
    if world.size < least:
        refuse("1 rank shares the model with nobody; give 2 or 4, or leave both out", "world.size")
    return world


def sharding_of(shard: Sharding | str) -> Sharding:
    """Take how ranks share a model, as "ddp" or "fsdp2"."""
    if isinstance(shard, Sharding):
        return shard
    found = _SHARDINGS.get(spelling.text(shard, "world.sharding").strip().lower())
    if found is None:
        known = " or ".join(_SHARDINGS)
        refuse(f"{checks.shortly(shard)} cannot be verified; {known} would do", "world.sharding")
    return found


def verify_plan(plan: Plan | VerifyPlan | str | PathLike[str] | None) -> VerifyPlan | None:
    """Take what a plan says of blocks and what it predicts, from the plan or a file of one."""
    if plan is None or isinstance(plan, VerifyPlan):
        return plan
    if not isinstance(plan, Plan):
        plan = read_plan(plan)
    return VerifyPlan(
        actions=plan.actions,
        predicted_peak_bytes=plan.predicted_peak_bytes,
        predicted_extra_ns=plan.extra_ns,
        model_fingerprint=plan.model_fingerprint,
        counted=plan.counted,
        parallelism=plan.parallelism,
        precision=plan.precision,
        reduce_type=plan.reduce_type,
    )


def weights_path(given: str | PathLike[str]) -> str:
    """Take the path of weights; empty where the workload makes its own."""
    return spelling.text(str(given) if isinstance(given, PathLike) else given, "weights")


def nanoseconds(seconds: float | None, field: str) -> int | None:
    """Take a number of seconds above 0."""
    if seconds is None:
        return None
    number: Any = checks.plain(seconds)
    if type(number) not in (int, float) or not 0 < number < 10**9:
        refuse(f"{checks.shortly(number)} is not a number of seconds above 0, such as 60", field)
    return round(number * 10**9) or 1
