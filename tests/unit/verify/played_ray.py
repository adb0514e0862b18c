"""A Ray cluster that is played, and the place and process behind its actors; no ray is needed."""

import asyncio
import importlib.util
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from haversack.verify_devices import ListVerifyDevicesResponse, VerifyDevice
from haversack_server.places import JobProcess, Start
from haversack_server.ray_place import RayPlace
from haversack_server.remote_job import RemoteJob
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
        self.util = Groups()

    def nodes(self) -> list[Mapping[str, Any]]:
        if self.is_headless:
            raise LostError("no head")
        return [
            {"Alive": True, "Resources": each, "NodeManagerAddress": "10.0.0.1"}
            for each in self.machines
        ]

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


class Groups:
    """Placement groups of such a cluster: ``made`` ever, ``left`` are those not removed."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.left: list[Any] = []
        self.failure: Exception | None = None
        self.is_slow = threading.Event()
        self.is_slow.set()
        self.scheduling_strategies = SimpleNamespace(
            PlacementGroupSchedulingStrategy=lambda group, placement_group_bundle_index: (
                group,
                placement_group_bundle_index,
            )
        )

    def placement_group(self, bundles: Any, *, strategy: str, name: str) -> Any:
        self.made.append((bundles, strategy, name))
        self.is_slow.wait()
        if self.failure is not None:
            raise self.failure
        self.left.append(name)
        return name

    def remove_placement_group(self, group: Any) -> None:
        self.left.remove(group)


class EchoProcess:
    """The process of such a place."""

    scratch = "/far/away"

    def __init__(self, gpus: tuple[VerifyDevice, ...]) -> None:
        self.gpus = gpus
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

    async def overfilled(self) -> str:
        await asyncio.Event().wait()
        return ""

    async def close(self) -> str:
        return "last words"


class EchoPlace:
    """Starts it, once there is ``room``."""

    def __init__(
        self, jobs: int = 1, *, has_room: bool = False, gpus: tuple[VerifyDevice, ...] = ()
    ) -> None:
        self.gpus = gpus
        self.room = asyncio.Event()
        if has_room:
            self.room.set()
        self.jobs = jobs
        self.starts: list[Start] = []

    @property
    def name(self) -> str:
        return "echo"

    def check_device(self, device: str, gpus: int) -> None: ...

    async def devices(self) -> ListVerifyDevicesResponse:
        return ListVerifyDevicesResponse()

    def width(self, device: str) -> int:
        return self.jobs

    async def warm(self) -> None: ...

    async def start(self, start: Start) -> JobProcess:
        self.starts.append(start)
        await self.room.wait()
        return EchoProcess(self.gpus)

    async def close(self) -> None: ...


Joined = Callable[[Ray], RayPlace]


def joining(monkeypatch: pytest.MonkeyPatch) -> Joined:
    """Give what makes a place that has joined a cluster already."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())

    def joined(ray: Ray) -> RayPlace:
        place = RayPlace(jobs=8)
        monkeypatch.setattr(place, "_ray", ray)
        return place

    return joined
