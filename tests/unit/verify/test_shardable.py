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
from haversack_server.verify.admissible import check_admissible, check_attached
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


EIGHT = Parallelism(world_size=8, sharding=Sharding.FSDP2)


@pytest.mark.parametrize(
    ("parallelism", "world", "why"),
    [
        (Parallelism(world_size=4, tp=2), WORLD, r"parallelism\.tp"),
        (EIGHT, None, "for 8 ranks under FSDP2, and the job is one process"),
        (EIGHT, VerifyWorld(size=1), "the job is one process"),
        (EIGHT, VerifyWorld(size=2), "the job is on ranks under UNSPECIFIED"),
        (Parallelism(world_size=2), WORLD, "the job is on ranks under FSDP2"),
    ],
)
def test_a_plan_of_ranks_is_refused_on_others(
    parallelism: Parallelism, world: VerifyWorld | None, why: str
) -> None:
    plan = VerifyPlan(actions=RECOMPUTED.actions, parallelism=parallelism)
    with pytest.raises((InvalidRequestError, NotSupportedError), match=why):
        check_admissible(VerifyRequest(workload=MLP, plan=plan, world=world), ())


def test_a_plan_of_other_ranks_that_share_the_model_alike_is_taken() -> None:
    plan = VerifyPlan(actions=RECOMPUTED.actions, parallelism=EIGHT)
    check_admissible(VerifyRequest(workload=MLP, plan=plan, world=WORLD), ())


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
