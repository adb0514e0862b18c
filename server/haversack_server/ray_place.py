"""Processes of jobs on the machines of a Ray cluster: an actor for each, which holds its process.

Ray finds the machine, with as many GPUs as a job has, and the processors of its threads.
An actor that is lost before the job's process ran is replaced, once; what ran is never run again.
Knows nothing of what frames say; imports ray when it connects, and torch never.
"""

import asyncio
import importlib
import importlib.util
import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from haversack.errors import (
    HaversackError,
    InvalidRequestError,
    MissingExtraError,
    UnavailableError,
)
from haversack.verify_devices import ListVerifyDevicesResponse, VerifyDevice
from haversack_server.places import JobProcess, Start
from haversack_server.processes import NotStartedError
from haversack_server.ray_process import RayProcess
from haversack_server.ray_room import Room, last_line, living
from haversack_server.remote_job import GPUS, NOT_STARTED, SCRATCH, RemoteJob, packed, unpacked
from haversack_server.verify.records import from_json

_TRIES = 2  # of actors that are lost before their process runs; a second loss is not chance
_REACH_S = 5.0  # to reach the cluster's address; ray itself tries for minutes
_GPU = "cuda:0"
AUTO = "auto"


class RayPlace:
    """Starts processes on a cluster; connects when it is warmed, or with the first job.

    ``address`` is HOST:PORT of the cluster's head, or "auto" for the cluster of this machine. At
    most ``jobs`` are handed to Ray at once; those that it has no room for yet wait there.
    """

    def __init__(self, address: str = AUTO, *, jobs: int) -> None:
        check_address(address)
        if importlib.util.find_spec("ray") is None:
            raise MissingExtraError(
                "executor ray needs ray, here and on each machine of the cluster: "
                "pip install 'haversack[server,torch,ray]'"
            )
        self._address = address
        self._jobs = jobs
        self._ray: Any = None
        self._connecting = asyncio.Lock()

    @property
    def name(self) -> str:
        """What reports call it."""
        return "ray"

    def check_device(self, device: str, gpus: int) -> None:
        """Raise InvalidRequestError for a GPU by its number: a job gets those that are free."""
        if device.startswith("cuda") and device != _GPU:
            raise InvalidRequestError(
                f"{device} names a GPU of one machine; a job on a cluster gets any GPU that is "
                f"free, as many as it asks for, and sees them as {_GPU} on: give that, or cpu",
                field="device",
            )

    async def devices(self) -> ListVerifyDevicesResponse:
        """Say what the machines have. Raises HaversackError if the cluster does not answer."""
        ray = await self._connected()
        try:
            machines = await asyncio.to_thread(living, ray)
        except NotStartedError as silent:
            raise UnavailableError(str(silent)) from silent
        return ListVerifyDevicesResponse(notes=tuple(map(_machine, machines)), executor=self.name)

    def width(self, device: str) -> int:
        """Give how many jobs may be handed to Ray at once, which has queues of its own."""
        return self._jobs

    async def warm(self) -> None:
        """Connect to the cluster. Raises HaversackError if it cannot be reached."""
        await self._connected()

    async def close(self) -> None:
        """Leave the cluster; it ends every actor that is left."""
        if self._ray is not None:
            await asyncio.to_thread(self._ray.shutdown)

    async def start(self, start: Start) -> JobProcess:
        """Start a process on a machine as soon as one has room. Raises NotStartedError."""
        try:
            ray = await self._connected()
        except HaversackError as failed:
            raise NotStartedError(str(failed)) from failed
        room = await Room.taken(ray, start)
        try:
            return await _started(ray, room, start)
        except BaseException:
            await room.leave()
            raise

    async def _connected(self) -> Any:
        async with self._connecting:
            if self._ray is None:
                self._ray = await asyncio.to_thread(_connect, self._address)
            return self._ray


async def _started(ray: Any, room: Room, start: Start) -> RayProcess:
    """Start an actor in the room, and another where it is lost before the job's process runs."""
    last_words = ""
    for _ in range(_TRIES):
        try:
            return await _tried(ray, room, start)
        except ray.exceptions.RayError as lost:
            last_words = last_line(lost)
    raise NotStartedError(
        f"{_TRIES} workers of the cluster ended before the job's process ran, the last with: "
        f"{last_words}"
    )


async def _tried(ray: Any, room: Room, start: Start) -> RayProcess:
    # Ray would restart an actor whose job ran as well, and send its start to one that has it.
    actor = ray.remote(RemoteJob).options(**room.options(), max_restarts=0, max_task_retries=0)
    process = RayProcess(ray, actor.remote(), room)
    try:
        told = unpacked(await process.actor.start.remote(packed(start)))
    except BaseException:
        await process.kill()
        raise
    if NOT_STARTED in told:
        await process.kill()
        raise NotStartedError(told[NOT_STARTED])
    gpus = tuple(from_json(VerifyDevice, each) for each in told[GPUS])
    return replace(process, scratch=told[SCRATCH], gpus=gpus)


def check_address(address: str) -> None:
    """Raise InvalidRequestError for what is no address of a cluster."""
    host, _, port = address.rpartition(":")
    if address == AUTO or (host and "/" not in host and port.isascii() and port.isdigit()):
        return
    raise InvalidRequestError(
        f"{address!r} is no address of a Ray cluster; give HOST:PORT of its head, or {AUTO} for "
        "the cluster that this machine belongs to",
        field="ray_address",
    )


def _connect(address: str) -> Any:
    """Join the cluster as a driver; not in the main thread, whose signals ray would take."""
    try:
        if address != AUTO:
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
        # Ray would try for a quarter of an hour, in a thread that nobody can stop.
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
        ray: Any = importlib.import_module("ray")
        importlib.import_module("ray.util.scheduling_strategies")
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (OSError, RuntimeError, ValueError) as failed:
        raise HaversackError(
            f"no Ray cluster at ray_address {address}: {failed}; start one with ray start, on this "
            "machine too"
        ) from failed
    return ray


def _machine(node: Mapping[str, Any]) -> str:
    has = node["Resources"]
    return (
        f"machine {node['NodeManagerAddress']} has {has.get('CPU', 0):g} CPU and "
        f"{has.get('GPU', 0):g} GPU"
    )
