"""A GPU belongs to one job at a time, and a job of ranks to as many: with a place that has GPUs."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from haversack.parallelism import Sharding
from haversack.run import WorkloadReference
from haversack.verify import FailureReason, VerifyRequest, VerifyWorld
from haversack.verify_devices import ListVerifyDevicesResponse
from haversack_server.jobs import JobRunner
from haversack_server.places import Start
from haversack_server.verify.shardable import devices_of

pytestmark = pytest.mark.asyncio
pytest.importorskip("torch", reason="a job is admitted only where torch is")


class Ends:
    """A process that is gone a moment later."""

    scratch = "/nowhere"
    gpus = ()

    def __init__(self, ended: Any) -> None:
        self._ended = ended

    async def send(self, message: Mapping[str, Any]) -> None: ...

    async def receive(self) -> None:
        await asyncio.sleep(0.01)

    async def status(self) -> int:
        return 7

    async def overfilled(self) -> str:
        await asyncio.Event().wait()
        return ""

    async def close(self) -> str:
        self._ended()
        return ""


class Gpus:
    """Notes which devices are in use, and that none is in use twice."""

    def __init__(self) -> None:
        self.in_use: Counter[str] = Counter()
        self.together = 0

    @property
    def name(self) -> str:
        return "gpus"

    def check_device(self, device: str, gpus: int) -> None: ...

    async def devices(self) -> ListVerifyDevicesResponse:
        return ListVerifyDevicesResponse()

    def width(self, device: str) -> int:
        return 1

    async def warm(self) -> None: ...

    async def start(self, start: Start) -> Ends:
        devices = devices_of(start.device, start.gpus)
        self.in_use.update(devices)
        assert set(self.in_use.values()) <= {0, 1}
        self.together = max(self.together, self.in_use.total())
        return Ends(lambda: self.in_use.subtract(devices))

    async def close(self) -> None: ...


def asked(device: str, ranks: int = 1, device_count: int | None = None) -> VerifyRequest:
    world = VerifyWorld(size=ranks, sharding=Sharding.FSDP2) if ranks > 1 else None
    workload = WorkloadReference(name="mlp")
    return VerifyRequest(workload=workload, device=device, world=world, device_count=device_count)


async def test_no_gpu_is_in_two_jobs_and_one_of_several_holds_all_of_them() -> None:
    place = Gpus()
    async with JobRunner(place=place) as runner:
        requests = [
            asked("cuda:0"),
            asked("cuda:0", ranks=2),
            asked("cuda:1", device_count=2),
            asked("cuda:1"),
            asked("cuda:1", ranks=2),
            asked("cuda:2"),
            asked("cuda:0", ranks=4),
        ]
        jobs = [runner.submit(request) for request in requests]
        async with asyncio.timeout(10):
            for job in jobs:
                events = [event async for event in job.events()]
                report = events[-1].report
                assert report is not None
                assert report.failure is not None
                assert report.failure.reason is FailureReason.WORKER_LOST
    assert place.in_use.total() == 0
    assert place.together == 4
