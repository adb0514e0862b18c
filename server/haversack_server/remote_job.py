"""The far end of a job on a cluster: holds its process there, and speaks bytes, text and numbers.

The process is the one that a server's own machine would start, with the same limits, and ends with
this one, however that ends. Imports neither ray nor torch.
"""

import os
from typing import Any

from haversack_server.local_place import LocalPlace
from haversack_server.places import JobProcess, Place, Start
from haversack_server.processes import NotStartedError
from haversack_server.verify import frames
from haversack_server.verify.records import from_json, to_json

SCRATCH, GPUS, NOT_STARTED, NO_FRAME = "scratch", "gpus", "not_started", "no_frame"
_SHOWS_ALL = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"


class RemoteJob:
    """Starts one process; made by a cluster, on the machine that the job runs on.

    That machine is the ``place`` if it is None.
    """

    def __init__(self, place: Place | None = None) -> None:
        self._place = place or LocalPlace(is_parent=True)
        self._process: JobProcess | None = None

    async def start(self, start: bytes) -> bytes:
        """Start it; gives a frame with its scratch folder and its GPUs, or why it has neither."""
        asked = from_json(Start, unpacked(start))
        try:
            _check_gpus_are_shown(asked)
            self._process = await self._place.start(asked)
        except NotStartedError as failed:
            return frames.pack({NOT_STARTED: str(failed)})
        gpus = [to_json(each) for each in self._process.gpus]
        return frames.pack({SCRATCH: self._process.scratch, GPUS: gpus})

    async def send(self, frame: bytes) -> None:
        """Send it a frame."""
        await self._held().send(unpacked(frame))

    async def receive(self) -> bytes | None:
        """Receive a frame; None once it has ended. What is none is told in a frame of ours."""
        try:
            message = await self._held().receive()
        except frames.FrameError as wrong:
            message = {NO_FRAME: str(wrong)}
        return None if message is None else frames.pack(message)

    async def status(self) -> int | None:
        """Wait for its exit status; None where nobody knows it."""
        return await self._held().status()

    async def overfilled(self) -> str:
        """Wait until its scratch folder holds more than it may."""
        return await self._held().overfilled()

    async def close(self) -> str:
        """Kill it and leave nothing behind; gives the last that it printed."""
        last_words = "" if self._process is None else await self._process.close()
        await self._place.close()
        return last_words

    def _held(self) -> JobProcess:
        assert self._process is not None, "start comes first"
        return self._process


def _check_gpus_are_shown(start: Start) -> None:
    """Raise NotStartedError where Ray does not say which GPUs are the job's."""
    if start.device != "cpu" and os.environ.get(_SHOWS_ALL, "0").lower() not in ("", "0", "false"):
        raise NotStartedError(
            f"{_SHOWS_ALL} is set on the machine of the cluster, so that jobs would share GPUs "
            "without knowing; unset it there"
        )


def packed(record: Any) -> bytes:
    """Spell a record as a frame."""
    return frames.pack(to_json(record))


def unpacked(frame: bytes) -> dict[str, Any]:
    """Read a whole frame. Raises FrameError."""
    return frames.unpack(frame[frames.HEADER_BYTES :])
