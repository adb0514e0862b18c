"""Processes of jobs on the machines of a Ray cluster: an actor for each, which holds its process.

Ray finds the machine, with one GPU for a job on a GPU, and the processors of its threads. An actor
is never restarted: what it ran is lost with it. Frames travel as bytes. Knows nothing of what they
say; imports ray when it connects, and torch never.
"""

import asyncio
import importlib
import importlib.util
import logging
import os
import socket
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from haversack.errors import HaversackError, InvalidRequestError, MissingExtraError
from haversack_server.places import JobProcess, Start
from haversack_server.processes import NotStartedError
from haversack_server.remote_job import (
    NO_FRAME,
    NOT_STARTED,
    SCRATCH,
    RemoteJob,
    packed,
    unpacked,
)
from haversack_server.verify import frames

_log = logging.getLogger(__name__)
_TRIES = 2  # of actors that are lost before their process runs; a second loss is not chance
_END_S = 10.0  # that an actor has to end its process before it is killed
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

    def check_device(self, device: str) -> None:
        """Raise InvalidRequestError for a GPU by its number: a job gets the one that is free."""
        if device.startswith("cuda") and device != _GPU:
            raise InvalidRequestError(
                f"{device} names a GPU of one machine; a job on a cluster gets any GPU that is "
                f"free, and sees it as {_GPU}: give that, or cpu",
                field="device",
            )

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
        needs = _needs(start)
        await asyncio.to_thread(_check_machines, ray, needs)
        last_words = ""
        for _ in range(_TRIES):
            try:
                return await self._tried(ray, needs, start)
            except ray.exceptions.RayError as lost:
                last_words = _last_line(lost)
        raise NotStartedError(
            f"{_TRIES} workers of the cluster ended before the job's process ran, the last with: "
            f"{last_words}"
        )

    async def _tried(self, ray: Any, needs: Mapping[str, int], start: Start) -> "RayProcess":
        actor = ray.remote(RemoteJob).options(
            num_cpus=needs["CPU"],
            num_gpus=needs.get("GPU", 0),
            max_restarts=0,
            max_task_retries=0,
        )
        process = RayProcess(ray, actor.remote())
        try:
            told = unpacked(await process.actor.start.remote(packed(start)))
        except BaseException:
            await process.kill()
            raise
        if NOT_STARTED in told:
            await process.kill()
            raise NotStartedError(told[NOT_STARTED])
        return replace(process, scratch=told[SCRATCH])

    async def _connected(self) -> Any:
        async with self._connecting:
            if self._ray is None:
                self._ray = await asyncio.to_thread(_connect, self._address)
            return self._ray


@dataclass(frozen=True, slots=True)
class RayProcess:
    """A job's process behind its actor; without the actor it is as one that has ended."""

    ray: Any
    actor: Any
    scratch: str = ""

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send it a frame."""
        await self._answer(self.actor.send.remote(frames.pack(message)))

    async def receive(self) -> dict[str, Any] | None:
        """Receive a frame; None once it has ended. Raises FrameError for what is none."""
        frame = await self._answer(self.actor.receive.remote())
        message = None if frame is None else unpacked(frame)
        if message is not None and NO_FRAME in message:
            raise frames.FrameError(str(message[NO_FRAME]))
        return message

    async def status(self) -> int | None:
        """Wait for its exit status; None where nobody knows it."""
        status: int | None = await self._answer(self.actor.status.remote())
        return status

    async def close(self) -> str:
        """Kill it unless it ended, and its actor by force; gives the last that it printed."""
        last_words: str | None = None
        try:
            async with asyncio.timeout(_END_S):
                last_words = await self._answer(self.actor.close.remote())
        except TimeoutError:
            _log.warning("a worker of the cluster did not end a job; it is killed")
        finally:
            await self.kill()
        return last_words or ""

    async def kill(self) -> None:
        """Kill the actor; its process ends with it."""
        await asyncio.to_thread(self.ray.kill, self.actor, no_restart=True)

    async def _answer(self, asked: Awaitable[Any]) -> Any:
        """Wait for an actor's answer; None where the actor is gone."""
        try:
            return await asked
        except self.ray.exceptions.RayError as lost:
            _log.warning("a worker of the cluster was lost: %s", _last_line(lost))
            return None


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
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (OSError, RuntimeError, ValueError) as failed:
        raise HaversackError(
            f"no Ray cluster at ray_address {address}: {failed}; start one with ray start, on this "
            "machine too"
        ) from failed
    return ray


def _needs(start: Start) -> dict[str, int]:
    """Give what a machine must have free: the ranks of a job stay together, on one."""
    needs = {"CPU": start.threads * start.ranks}
    return needs if start.device == "cpu" else {**needs, "GPU": 1}


def _check_machines(ray: Any, needs: Mapping[str, int]) -> None:
    """Raise NotStartedError if no machine has what is needed, were it free."""
    try:
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    except ray.exceptions.RayError as lost:
        raise NotStartedError(f"the cluster does not answer: {_last_line(lost)}") from lost
    if any(all(has.get(kind, 0) >= count for kind, count in needs.items()) for has in machines):
        return
    wanted = " and ".join(f"{count} {kind}" for kind, count in needs.items())
    have = "; ".join(
        " and ".join(f"{has.get(kind, 0):g} {kind}" for kind in needs) for has in machines
    )
    raise NotStartedError(
        f"no machine of the cluster has {wanted}, which the job needs; they have {have or 'none'}"
    )


def _last_line(lost: Exception) -> str:
    """Give the sentence of an error that may hold the whole stack of another machine."""
    return str(lost).strip().rpartition("\n")[2][:500]
