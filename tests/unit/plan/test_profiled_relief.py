"""Relief of a profile's plan: each advice, followed, has the floor that it promised."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.unit.plan.test_profiled import PROFILE, planned

from haversack.errors import (
    DeadlineError,
    HaversackError,
    InternalError,
    InvalidRequestError,
    MissingExtraError,
    NotSupportedError,
)
from haversack.parallelism import MOST_RANKS, Parallelism, Sharding
from haversack.plan import PlanConstraints, PlanRequest, PlanStatus
from haversack.profile import Profile, ProfileBlock, ProfileParameter
from haversack.run import Budget, Optimizer, OptimizerKernel, Training
from haversack_server.plan.profiled_relief import relief

# A kernel whose step takes nothing, so that no step of an optimizer is the highest moment.
ADAMW = Training(optimizer=Optimizer.ADAMW, optimizer_kernel=OptimizerKernel.FUSED, accumulation=4)
LIGHT = Training(optimizer=Optimizer.SGD_MOMENTUM, accumulation=4)


def _large(block: ProfileBlock) -> ProfileBlock:
    """Give a block so many parameters that states are most of the floor."""
    shape = ProfileParameter(rows=1000, row_bytes=4)
    return replace(block, parameter_bytes=4000, gradient_bytes=4000, parameters=(shape,))


LARGE: Profile = replace(PROFILE, blocks=tuple(map(_large, PROFILE.blocks)))


def _check_followed(fields: Mapping[str, Any], ways: Mapping[str, Mapping[str, Any]]) -> None:
    """Ask below the floor; then each way that is advised, at the floor that it promises."""
    floor_bytes = planned(10**9, LARGE, **fields).floor_bytes
    answer = planned(floor_bytes - 1, LARGE, **fields)
    assert answer.status is PlanStatus.INFEASIBLE
    assert {each.change for each in answer.relief} == set(ways)
    assert [each.delta_bytes for each in answer.relief] == sorted(
        each.delta_bytes for each in answer.relief
    )
    for each in answer.relief:
        lower = floor_bytes + each.delta_bytes
        assert each.delta_bytes < 0
        followed = {**fields, **ways[each.change]}
        assert planned(lower, LARGE, **followed).status is PlanStatus.OPTIMAL
        assert planned(lower - 1, LARGE, **followed).status is PlanStatus.INFEASIBLE


def test_each_advice_lowers_the_floor_by_what_it_says() -> None:
    must = PlanConstraints(must_save=("layers.1",))
    two = Parallelism(world_size=2, sharding=Sharding.FSDP2)
    ways: dict[str, dict[str, Any]] = {
        "nothing that must be saved": {"constraints": None},
        "accumulation 1": {"training": replace(ADAMW, accumulation=1)},
        "optimizer sgd_momentum": {"training": LIGHT},
        "2 GPUs under FSDP2": {"parallelism": two},
    }
    _check_followed({"training": ADAMW, "constraints": must}, ways)


@pytest.mark.parametrize("fault", [MissingExtraError, InternalError])
def test_only_what_is_not_open_or_not_settled_is_left_out(fault: type[HaversackError]) -> None:
    request = PlanRequest(profile=LARGE, budget=Budget(bytes=1), training=ADAMW)

    def floor(asked: PlanRequest, error: type[HaversackError]) -> int:
        if asked.training.accumulation == 1:
            raise error("no")
        return 1

    for refused in (InvalidRequestError, NotSupportedError, DeadlineError):
        found = relief(request, 2, partial(floor, error=refused))
        assert {each.change for each in found} >= {"optimizer sgd_momentum"}
        assert "accumulation 1" not in {each.change for each in found}
    with pytest.raises(fault):
        relief(request, 2, partial(floor, error=fault))


def test_ranks_that_shard_are_doubled_and_replicas_are_sharded() -> None:
    four = Parallelism(world_size=4, sharding=Sharding.FSDP2)
    eight = {"parallelism": Parallelism(world_size=8, sharding=Sharding.FSDP2)}
    shared = {"training": replace(LIGHT, accumulation=1)}
    _check_followed({**shared, "parallelism": four}, {"8 GPUs under FSDP2": eight})
    replicas = Parallelism(world_size=8)
    _check_followed({**shared, "parallelism": replicas}, {"8 GPUs under FSDP2": eight})


def _sharded_floor(fields: Mapping[str, Any], ranks: int) -> int:
    on_ranks = Parallelism(world_size=ranks, sharding=Sharding.FSDP2)
    return planned(10**9, LARGE, **{**fields, "parallelism": on_ranks}).floor_bytes


def test_the_fewest_ranks_that_are_enough_are_advised() -> None:
    fields = {"training": LIGHT}
    floors = {ranks: _sharded_floor(fields, ranks) for ranks in (2, 4, 8)}
    assert floors[2] > floors[4] > floors[8]
    for ranks, devices in ((2, "twice"), (4, "four times"), (8, "eight times")):
        answer = planned(floors[ranks], LARGE, **fields)
        (advice,) = [each for each in answer.relief if "GPUs" in each.change]
        assert advice.change == f"{ranks} GPUs under FSDP2"
        assert answer.floor_bytes + advice.delta_bytes == floors[ranks]
        assert advice.cost.startswith(f"{devices} the devices;")
        assert "alone" not in advice.cost


def test_ranks_that_are_not_enough_are_advised_as_such() -> None:
    fields = {"training": LIGHT}
    answer = planned(_sharded_floor(fields, 8) - 1, LARGE, **fields)
    (advice,) = [each for each in answer.relief if "GPUs" in each.change]
    assert advice.change == "8 GPUs under FSDP2"
    assert advice.cost.endswith("; not enough alone")


def test_more_ranks_than_there_may_be_are_not_advised() -> None:
    most = Parallelism(world_size=MOST_RANKS, sharding=Sharding.FSDP2)
    answer = planned(1, LARGE, training=ADAMW, parallelism=most)
    assert answer.status is PlanStatus.INFEASIBLE
    assert [each.change for each in answer.relief if "GPUs" in each.change] == []


def test_every_change_has_its_cost_in_words() -> None:
    bound = PlanConstraints(
        equal_treatment=True, without_segments=True, must_save=("a",), must_recompute=("b",)
    )
    request = PlanRequest(profile=LARGE, budget=Budget(bytes=1), training=ADAMW, constraints=bound)
    found = relief(request, 10**9, lambda _: 2)
    assert len(found) == 7
    assert [each.change for each in found if not each.cost] == []
