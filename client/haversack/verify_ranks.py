"""Which ranks a job has that verifies a plan of several: as the plan is shared, or refused."""

from haversack.parallelism import Sharding
from haversack.reading import refuse
from haversack.spread import Spread, spread_in_words, spread_of
from haversack.verify import VerifyPlan, VerifyWorld

_RANKS = (2, 4)  # that a server runs
_REPLICAS = Sharding.REPLICATED


def ranks_of(plan: VerifyPlan | None, world: VerifyWorld | None) -> VerifyWorld | None:
    """Give the ranks of a job: those that it names, else those that its plan is for.

    As many as the plan is for have its mesh and types, and measure a step; others have the job's
    own. Raises what ``check_ranks`` raises.
    """
    if plan is None or plan.parallelism is None:
        return world
    planned = spread_of(plan.parallelism)
    if world is None and planned.ranks in _RANKS:
        return VerifyWorld(size=planned.ranks, sharding=_sharding(planned))
    check_ranks(plan, world)
    return world


def check_ranks(plan: VerifyPlan, world: VerifyWorld | None) -> None:
    """Refuse ranks that share the model in another way than the plan of several has it.

    Raises InvalidRequestError; NotSupportedError for ranks that no profile is planned for.
    """
    if plan.parallelism is None or spread_of(plan.parallelism).ranks == 1:
        return
    sharding = _sharding(spread_of(plan.parallelism))
    job = "one process"
    if world is not None and world.size > 1:
        if (world.sharding or _REPLICAS) is sharding:
            return
        job = f"on ranks under {world.sharding.name}"
    refuse(
        f"the plan is for {spread_in_words(plan.parallelism)}, and the job is {job}; verify it on "
        f"ranks, with --shard {'ddp' if sharding is _REPLICAS else 'fsdp2'} --world-size 2 or 4",
        "plan",
    )


def _sharding(planned: Spread) -> Sharding:
    return _REPLICAS if planned.is_replicated else Sharding.FSDP2
