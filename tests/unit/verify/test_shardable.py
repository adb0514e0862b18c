"""Which devices the ranks of a job take, and what is refused before one starts."""

from dataclasses import replace
from typing import Any

import pytest

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.parallelism import Parallelism, Sharding
from haversack.run import BlockAction, WorkloadReference
from haversack.verify import VerifyPlan, VerifyRequest, VerifySchedule, VerifyWorld
from haversack_server.gpus import attached
from haversack_server.gpus.attached import Attached
from haversack_server.gpus.nvml import Gpu
from haversack_server.job import Job
from haversack_server.verify.admissible import check_attached
from haversack_server.verify.shardable import (
    as_planned,
    check_device_count,
    check_sharded,
    devices_of,
)

MLP = WorkloadReference(name="mlp")
WORLD = VerifyWorld(size=2, sharding=Sharding.FSDP2)
UNSAID = VerifySchedule.UNSPECIFIED
RECOMPUTED = VerifyPlan(actions=(BlockAction(block="a", option="recompute"),))


def request(device: str = "", schedule: VerifySchedule = UNSAID) -> VerifyRequest:
    return VerifyRequest(workload=MLP, device=device, schedule=schedule, world=WORLD)


@pytest.mark.parametrize(
    ("device", "ranks", "devices"),
    [
        ("", 4, ("cpu",)),
        ("cpu", 2, ("cpu",)),
        ("cuda:0", 1, ("cuda:0",)),
        ("cuda:1", 3, ("cuda:1", "cuda:2", "cuda:3")),
    ],
)
def test_every_rank_has_a_gpu_and_all_share_the_cpu(
    device: str, ranks: int, devices: tuple[str, ...]
) -> None:
    assert devices_of(device, ranks) == devices


def test_a_job_needs_the_gpus_of_all_its_ranks() -> None:
    assert Job("id", request("cuda:2")).devices == ("cuda:2", "cuda:3")
    assert Job("id", request()).devices == ("cpu",)


def test_one_process_may_have_several_gpus() -> None:
    several = VerifyRequest(workload=MLP, device="cuda:1", device_count=3)
    check_device_count(several)
    assert Job("id", several).devices == ("cuda:1", "cuda:2", "cuda:3")
    check_device_count(replace(several, device="cpu", device_count=1))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"device": "cpu"}, "several devices of one process are GPUs"),
        ({"world": WORLD}, "each rank has a GPU of its own"),
        ({"plan": RECOMPUTED}, "one device"),
    ],
)
def test_several_devices_are_of_one_process_on_gpus_without_a_plan(
    fields: dict[str, Any], why: str
) -> None:
    asked = VerifyRequest(workload=MLP, **{"device": "cuda:0", "device_count": 2, **fields})
    with pytest.raises(InvalidRequestError, match=why) as refusal:
        check_device_count(asked)
    assert refusal.value.field == "device_count"


TWO_SHARDS = Parallelism(world_size=2, sharding=Sharding.FSDP2, reshard_after_forward=False)


@pytest.mark.parametrize(
    ("parallelism", "is_planned"),
    [
        (TWO_SHARDS, True),
        (Parallelism(dp_shard=2, sharding=Sharding.FSDP2), True),
        (Parallelism(world_size=4, sharding=Sharding.FSDP2), False),
        (Parallelism(world_size=2), False),
        (None, False),
    ],
)
def test_ranks_share_the_model_as_a_plan_of_as_many_has_it(
    parallelism: Parallelism | None, is_planned: bool
) -> None:
    planned = VerifyPlan(actions=RECOMPUTED.actions, parallelism=parallelism)
    found = as_planned(replace(request(), plan=planned))
    assert found == (parallelism if is_planned else None)


def test_a_plan_of_ranks_that_no_profile_is_planned_for_is_refused() -> None:
    odd = VerifyPlan(actions=RECOMPUTED.actions, parallelism=Parallelism(world_size=4, tp=2))
    with pytest.raises(NotSupportedError, match=r"parallelism\.tp"):
        check_sharded(replace(request(), plan=odd), WORLD)


def test_ranks_need_as_many_gpus_and_whole_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [Gpu(cuda_name=name, index=0, uuid=name, name="H200") for name in ("GPU-a", "GPU-b")]
    part = Gpu(cuda_name="MIG-c", index=2, uuid="MIG-c", parent_uuid="GPU-c", name="MIG 1g.18gb")
    monkeypatch.setattr(attached, "attached_gpus", lambda: Attached((*gpus, part)))
    check_attached("cuda:0", 2)
    check_attached("cuda:2", 1)
    with pytest.raises(InvalidRequestError, match=r"cuda:2 is a MIG instance .* whole GPUs"):
        check_attached("cuda:1", 2)
    monkeypatch.setattr(attached, "attached_gpus", lambda: Attached(tuple(gpus[:1])))
    with pytest.raises(InvalidRequestError, match=r"cuda:1 is not attached .* cuda:0 \(H200\);"):
        check_attached("cuda:0", 2)


def test_a_helper_thread_is_of_one_process() -> None:
    with pytest.raises(InvalidRequestError, match="schedule: a helper thread"):
        check_sharded(request(schedule=VerifySchedule.BACKWARD_IN_THREAD), WORLD)
