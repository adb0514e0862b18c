"""Which devices the ranks of a job take, and what is refused before one starts."""

import pytest

from haversack.errors import InvalidRequestError
from haversack.parallelism import Sharding
from haversack.run import WorkloadReference
from haversack.verify import VerifyRequest, VerifySchedule, VerifyWorld
from haversack_server.job import Job
from haversack_server.verify.admissible import check_attached
from haversack_server.verify.shardable import check_sharded, devices_of

WORLD = VerifyWorld(size=2, sharding=Sharding.FSDP2)
UNSAID = VerifySchedule.UNSPECIFIED


def request(device: str = "", schedule: VerifySchedule = UNSAID) -> VerifyRequest:
    workload = WorkloadReference(name="mlp")
    return VerifyRequest(workload=workload, device=device, schedule=schedule, world=WORLD)


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


def test_the_gpu_of_the_last_rank_is_asked_for_too() -> None:
    asked: list[str] = []
    check_sharded(request("cuda:0"), WORLD, asked.append)
    assert asked == ["cuda:0", "cuda:1"]


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haversack_server.verify.admissible.attached_gpus", lambda: ["0"])
    with pytest.raises(InvalidRequestError, match="device: cuda:1 is not attached"):
        check_sharded(request("cuda:0"), WORLD, check_attached)


def test_a_helper_thread_is_of_one_process() -> None:
    with pytest.raises(InvalidRequestError, match="schedule: a helper thread"):
        check_sharded(request(schedule=VerifySchedule.BACKWARD_IN_THREAD), WORLD, check_attached)
