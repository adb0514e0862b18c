"""The seam between jobs and the places of their processes, without a cluster: ray is played."""

import asyncio
import importlib.util
import os
import pathlib
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from haversack.errors import HaversackError, InvalidRequestError, MissingExtraError
from haversack.run import WorkloadReference
from haversack.verify import FailureReason, JobState, VerifyRequest, VerifyWorld
from haversack_server import jobs
from haversack_server.job import Job
from haversack_server.jobs import JobRunner
from haversack_server.places import JobProcess, Start
from haversack_server.processes import NotStartedError, start_afresh
from haversack_server.ray_place import RayPlace, check_address
from haversack_server.remote_job import RemoteJob, unpacked
from haversack_server.verify import frames
from haversack_server.verify.frames import FrameError

START = Start(job_id="job", device="cpu", deadline_ns=10**9)


class LostError(Exception):
    """What ray raises where an actor is gone."""


class Actor:
    """Runs the methods of an object as ray would; a lost one answers nothing."""

    def __init__(self, held: object, *, is_lost: bool) -> None:
        self._held, self._is_lost = held, is_lost

    def __getattr__(self, name: str) -> Any:
        async def remote(*given: Any) -> Any:
            if self._is_lost:
                raise LostError("stack\nthe worker died")
            assert all(isinstance(each, bytes) for each in given)
            return await getattr(self._held, name)(*given)

        return SimpleNamespace(remote=remote)


class Ray:
    """One cluster; ``lost`` actors are gone before they answer."""

    def __init__(self, lost: int = 0, machines: tuple[Mapping[str, float], ...] = ()) -> None:
        self.lost, self.machines = lost, machines or ({"CPU": 4.0, "GPU": 1.0},)
        self.asked: list[Mapping[str, Any]] = []
        self.killed = 0
        self.is_headless = False
        self.held = RemoteJob(EchoPlace(has_room=True))
        self.exceptions = SimpleNamespace(RayError=LostError)

    def nodes(self) -> list[Mapping[str, Any]]:
        if self.is_headless:
            raise LostError("no head")
        return [{"Alive": True, "Resources": each} for each in self.machines]

    def remote(self, kind: type) -> Any:
        assert kind is RemoteJob
        return self

    def options(self, **asked: Any) -> Any:
        self.asked.append(asked)
        is_lost = len(self.asked) <= self.lost
        return SimpleNamespace(remote=lambda: Actor(self.held, is_lost=is_lost))

    def kill(self, actor: object, *, no_restart: bool) -> None:
        assert no_restart
        self.killed += 1


class EchoProcess:
    """The process of such a place."""

    scratch = "/far/away"

    def __init__(self) -> None:
        self.frames: list[Mapping[str, Any]] = []

    async def send(self, message: Mapping[str, Any]) -> None:
        self.frames.append(message)

    async def receive(self) -> dict[str, Any] | None:
        if not self.frames:
            return None
        frame = dict(self.frames.pop(0))
        if "torn" in frame:
            raise FrameError("half a frame")
        return frame

    async def status(self) -> int | None:
        return -9

    async def close(self) -> str:
        return "last words"


class EchoPlace:
    """Starts it, once there is ``room``."""

    def __init__(self, jobs: int = 1, *, has_room: bool = False) -> None:
        self.room = asyncio.Event()
        if has_room:
            self.room.set()
        self.jobs = jobs
        self.starts: list[Start] = []

    def check_device(self, device: str) -> None: ...

    def width(self, device: str) -> int:
        return self.jobs

    async def warm(self) -> None: ...

    async def start(self, start: Start) -> JobProcess:
        self.starts.append(start)
        await self.room.wait()
        return EchoProcess()

    async def close(self) -> None: ...


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Callable[[Ray], RayPlace]:
    """Make a place that has joined a cluster already."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())

    def joined(ray: Ray) -> RayPlace:
        place = RayPlace(jobs=8)
        monkeypatch.setattr(place, "_ray", ray)
        return place

    return joined


Joined = Callable[[Ray], RayPlace]


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
    [
        (START, 1, 0),
        (Start(job_id="j", device="cuda:0", deadline_ns=1, threads=3), 3, 1),
        (Start(job_id="j", device="cpu", deadline_ns=1, threads=2, ranks=2), 4, 0),
    ],
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
        place(Ray()).check_device(device)
    with pytest.raises(InvalidRequestError, match="cuda:1 names a GPU of one machine"):
        place(Ray()).check_device("cuda:1")


async def test_a_process_started_afresh_ends_without_its_parent(tmp_path: pathlib.Path) -> None:
    limits = {
        "scratch": str(tmp_path),
        "deadline_ns": 10**10,
        "memory_bytes": None,
        "sandbox": False,
    }
    process = await start_afresh(limits, gpu="", parent=os.getpid() + 1)  # as if it had ended
    assert await process.ended == 1
    await process.close()
