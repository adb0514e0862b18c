"""The small GPT as it is planned on several ranks."""

from functools import cache
from typing import Any

from tests.integration.small_gpt import workload_of

from haversack.parallelism import Parallelism, Sharding
from haversack.plan import Plan, PlanRequest
from haversack.profile import Profile
from haversack.run import Budget, Precision, Training
from haversack.torch import Workload, profile
from haversack_server.plan.answer import plan

APART = 1.02
MIXED, UNSPECIFIED = Precision.FP32_BF16_COMPUTE, Precision.UNSPECIFIED


@cache
def profiled(precision: Precision = UNSPECIFIED) -> tuple[Workload, Profile]:
    """A workload and its profile."""
    workload = workload_of()
    return workload, profile(workload, precision=precision)


def fsdp2(ranks: int, **settings: Any) -> Parallelism:
    """Spread over shards, or with ``dp_shard`` over replicas of them."""
    return Parallelism(world_size=ranks, sharding=Sharding.FSDP2, **settings)


def ddp(ranks: int, **settings: Any) -> Parallelism:
    """Spread over replicas."""
    return Parallelism(world_size=ranks, **settings)


def planned(
    parallelism: Parallelism, share_permille: int, found: Profile | None = None, **settings: Any
) -> Plan:
    """Plan with a budget between the floor and what saving everything needs."""

    def ask(budget_bytes: int) -> Plan:
        return plan(
            PlanRequest(
                profile=found or profiled()[1],
                budget=Budget(bytes=budget_bytes),
                parallelism=parallelism,
                training=Training(**settings),
                frontier_points=0,
            )
        )

    most = ask(2**40)
    assert most.predicted_peak_bytes is not None
    between = most.predicted_peak_bytes - most.floor_bytes
    return ask(most.floor_bytes + between * share_permille // 1000)
