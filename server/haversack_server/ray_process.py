"""A job's process on a machine of a Ray cluster, behind its actor; without it, one that ended."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

from haversack.verify_devices import VerifyDevice
from haversack_server.ray_room import Room, last_line
from haversack_server.remote_job import NO_FRAME, unpacked
from haversack_server.verify import frames

_log = logging.getLogger(__name__)
_END_S = 10.0  # that an actor has to end its process before it is killed


@dataclass(frozen=True, slots=True)
class RayProcess:
    """The actor, and the room that it leaves at its end."""

    ray: Any
    actor: Any
    room: Room
    scratch: str = ""
    gpus: tuple[VerifyDevice, ...] = ()

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

    async def overfilled(self) -> str:
        """Wait until its scratch folder holds too much; for ever where the actor is gone."""
        said: str | None = await self._answer(self.actor.overfilled.remote())
        if said is None:
            await asyncio.Event().wait()  # that the actor is gone is told to who listens
        return said or ""

    async def close(self) -> str:
        """Kill it unless it ended, then its actor by force; gives the last that it printed."""
        last_words: str | None = None
        try:
            async with asyncio.timeout(_END_S):
                last_words = await self._answer(self.actor.close.remote())
        except TimeoutError:
            _log.warning("a worker of the cluster did not end a job; it is killed")
        finally:
            try:
                await self.kill()
            finally:
                await self.room.leave()
        return last_words or ""

    async def kill(self) -> None:
        """Kill the actor by force; its process ends with it, and Ray does not start it again."""
        await asyncio.to_thread(self.ray.kill, self.actor, no_restart=True)

    async def _answer(self, asked: Awaitable[Any]) -> Any:
        """Wait for an actor's answer; None where the actor is gone."""
        try:
            return await asked
        except self.ray.exceptions.RayError as lost:
            _log.warning("a worker of the cluster was lost: %s", last_line(lost))
            return None
