"""The seam between jobs and the places of their processes, without a cluster: ray is played."""

import asyncio
import importlib.util
import os
import pathlib
import signal
from dataclasses import replace

import pytest
from tests.unit.verify.played_ray import START, EchoPlace, EchoProcess, Joined, Ray, joining

from haversack.errors import HaversackError, InvalidRequestError, MissingExtraError
from haversack.run import WorkloadReference
from haversack.verify import FailureReason, JobState, VerifyRequest, VerifyWorld
from haversack.verify_devices import VerifyDevice
from haversack_server import jobs
from haversack_server.job import Job
from haversack_server.jobs import JobRunner
from haversack_server.places import JobProcess, Start
from haversack_server.processes import NotStartedError, start_afresh
from haversack_server.ray_place import RayPlace, check_address
from haversack_server.remote_job import RemoteJob, packed, unpacked
from haversack_server.verify import frames
from haversack_server.verify.frames import FrameError


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Joined:
    return joining(monkeypatch)


async def test_frames_go_to_the_far_process_and_back_as_bytes(place: Joined) -> None:
    ray = Ray()
    process = await place(ray).start(START)
    assert process.scratch == "/far/away"
    await process.send({"order": 1})
    await process.send({"torn": True})
    assert await process.receive() == {"order": 1}
    with pytest.raises(FrameError, match="half a frame"):
        await process.receive()
    assert await process.receive() is None
    assert await process.status() == -9
    assert ray.killed == 0
    assert await process.close() == "last words"
    assert ray.killed == 1


@pytest.mark.parametrize(
    ("start", "cpus", "gpus"),
    [(START, 1, 0), (Start(job_id="j", device="cuda:0", deadline_ns=1, threads=3), 3, 1)],
)
async def test_an_actor_asks_for_what_its_job_uses_and_is_never_restarted(
    place: Joined, start: Start, cpus: int, gpus: int
) -> None:
    ray = Ray()
    await place(ray).start(start)
    (asked,) = ray.asked
    assert asked == {
        "num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0, "max_task_retries": 0,
    }  # fmt: skip
    assert ray.util.made == []


async def test_where_ray_hides_no_gpu_none_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "1")
    place = EchoPlace(has_room=True)
    answer = unpacked(await RemoteJob(place).start(packed(replace(START, device="cuda:0"))))
    assert "unset it there" in answer["not_started"]
    assert place.starts == []
    assert "scratch" in unpacked(await RemoteJob(place).start(packed(START)))


async def test_the_gpus_of_a_far_process_are_told(place: Joined) -> None:
    ray = Ray()
    gpu = VerifyDevice(device="cuda:0", uuid="GPU-1", memory_bytes=2**33, notes=("in use",))
    ray.held = RemoteJob(EchoPlace(has_room=True, gpus=(gpu,)))
    process = await place(ray).start(replace(START, device="cuda:0"))
    assert process.gpus == (gpu,)


async def test_a_cluster_lists_its_machines(place: Joined) -> None:
    listed = await place(Ray()).devices()
    assert (listed.executor, listed.devices) == ("ray", ())
    assert listed.notes == ("machine 10.0.0.1 has 4 CPU and 1 GPU",)


async def test_a_worker_that_is_lost_before_the_process_runs_is_replaced_once(
    place: Joined,
) -> None:
    once, twice = Ray(lost=1), Ray(lost=2)
    await place(once).start(START)
    assert (len(once.asked), once.killed) == (2, 1)
    with pytest.raises(NotStartedError, match=r"2 workers of the cluster .*: the worker died"):
        await place(twice).start(START)
    assert (len(twice.asked), twice.killed) == (2, 2)


async def test_what_no_machine_has_is_not_waited_for(place: Joined) -> None:
    ray = Ray(machines=({"CPU": 4.0}, {"CPU": 1.0, "GPU": 1.0}))
    wanted = Start(job_id="j", device="cuda:0", deadline_ns=1, threads=2)
    said = r"has 2 CPU and 1 GPU, .* 4 CPU and 0 GPU; 1 CPU and 1 GPU$"
    with pytest.raises(NotStartedError, match=said):
        await place(ray).start(wanted)
    assert ray.asked == []


async def test_a_cluster_without_its_head_starts_nothing(place: Joined) -> None:
    ray = Ray()
    ray.is_headless = True
    with pytest.raises(NotStartedError, match="the cluster does not answer: no head"):
        await place(ray).start(START)


async def test_a_start_that_is_cancelled_leaves_no_actor(place: Joined) -> None:
    ray = Ray()
    ray.held = RemoteJob(EchoPlace())
    starting = asyncio.create_task(place(ray).start(START))
    while not ray.asked:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    starting.cancel()
    await asyncio.wait((starting,))
    assert (starting.cancelled(), ray.killed) == (True, 1)


async def test_a_far_end_says_why_it_did_not_start() -> None:
    class Refuses(EchoPlace):
        async def start(self, start: Start) -> JobProcess:
            raise NotStartedError("no torch here")

    answer = await RemoteJob(Refuses()).start(
        frames.pack({"job_id": "j", "device": "cpu", "deadline_ns": 1})
    )
    assert unpacked(answer) == {"not_started": "no torch here"}


async def test_a_job_is_queued_until_its_place_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "check_admissible", lambda *_: None)
    place = EchoPlace(jobs=2)
    async with JobRunner(place=place) as runner:
        world = VerifyWorld(size=2)
        asked = [
            VerifyRequest(workload=WorkloadReference(name="mlp"), world=world) for _ in range(3)
        ]
        waiting = [runner.submit(each) for each in asked]
        while len(place.starts) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert {job.state for job in waiting} == {JobState.QUEUED}
        assert [start.ranks for start in place.starts] == [2, 2]
        place.room.set()
        reports = [await ended(job) for job in waiting]
    # The process says nothing but what it was sent, and that is no report.
    assert set(reports) == {FailureReason.WORKER_LOST}


async def test_a_report_says_where_its_job_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "check_admissible", lambda *_: None)
    gpu = VerifyDevice(device="cuda:1", uuid="GPU-1")

    class Says(EchoPlace):
        async def start(self, start: Start) -> JobProcess:
            process = EchoProcess((gpu,))
            # The process calls its first GPU 0, whichever it is here.
            process.frames.append({"environment": {"torch": "2", "device": "cuda:0"}})
            return process

    asked = VerifyRequest(workload=WorkloadReference(name="mlp"), device="cuda:1")
    async with JobRunner(place=Says()) as runner:
        job = runner.submit(asked)
        await ended(job)
    assert job.report is not None
    environment = job.report.environment
    assert environment is not None
    assert (environment.executor, environment.device) == ("echo", "cuda:1")
    assert environment.gpus == (gpu,)


async def ended(job: Job) -> FailureReason | None:
    *_, last = [event async for event in job.events()]
    assert last.report is not None
    return last.report.failure.reason if last.report.failure else None


@pytest.mark.parametrize("address", ["", "head", ":6379", "ray://head:10001", "head:port"])
def test_what_is_no_address_of_a_cluster_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequestError, match="HOST:PORT") as caught:
        check_address(address)
    assert caught.value.field == "ray_address"


async def test_a_cluster_that_is_not_there_is_said_by_its_address(place: Joined) -> None:
    del place
    with pytest.raises(HaversackError, match=r"no Ray cluster at ray_address 127\.0\.0\.1:1: "):
        await RayPlace("127.0.0.1:1", jobs=1).warm()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"haversack\[server,torch,ray\]"):
        RayPlace(jobs=1)


def test_a_gpu_is_taken_as_it_is_free(place: Joined) -> None:
    for device in ("cpu", "cuda:0"):
        place(Ray()).check_device(device, 2)
    with pytest.raises(InvalidRequestError, match="cuda:1 names a GPU of one machine"):
        place(Ray()).check_device("cuda:1", 1)


async def test_a_process_started_afresh_ends_without_its_parent(tmp_path: pathlib.Path) -> None:
    limits = {
        "scratch": str(tmp_path),
        "deadline_ns": 10**10,
        "memory_bytes": None,
        "sandbox": False,
    }
    process = await start_afresh(limits, gpu="", parent=os.getpid() + 1)  # as if it had ended
    assert await process.ended == -signal.SIGKILL
    await process.close()
