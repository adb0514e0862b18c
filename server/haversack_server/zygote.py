"""The server's end of a zygote: a worker that holds torch ready and forks a process for each job.

A zygote that died is replaced, never revived; its jobs' processes are killed and say so.
"""

import asyncio
import contextlib
import itertools
import pathlib
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from haversack_server.leftovers import tail
from haversack_server.processes import (
    NotStartedError,
    Process,
    kill_group,
    read_frame,
    start_worker,
)
from haversack_server.verify import frames

_START_S = 120.0
_STOP_S = 5.0
_OUTPUT = "zygote.txt"


@dataclass(slots=True)
class _Birth:
    """A job's process from the request on: first its pid comes, then its end."""

    pid: "asyncio.Future[int]"
    ended: "asyncio.Future[int | None]"


@dataclass(slots=True)
class Zygote:
    """Forks processes; made by ``start``, ended by ``stop``."""

    folder: pathlib.Path
    popen: "subprocess.Popen[bytes]"
    control: socket.socket
    ready: "asyncio.Future[None]"
    births: dict[int, _Birth] = field(default_factory=dict)
    # Not ids of jobs: one may be asked for again while its first process is still to be forked.
    numbers: "Iterator[int]" = field(default_factory=itertools.count)
    listening: "asyncio.Task[None] | None" = None

    @classmethod
    async def start(cls, folder: pathlib.Path) -> "Zygote":
        """Start one that is ready to fork.

        Raises NotStartedError with its last words, or where it takes too long.
        """
        ours, theirs = socket.socketpair()
        with theirs, (folder / _OUTPUT).open("wb") as output:
            arguments = ["--control-fd", str(theirs.fileno()), "--folder", str(folder)]
            popen = start_worker(arguments, theirs, folder, output=output)
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        zygote = cls(folder, popen, ours.dup(), ready)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        zygote.listening = asyncio.create_task(zygote._listen(reader, writer))
        try:
            await asyncio.wait_for(ready, _START_S)
        except BaseException as failed:
            kill_group(popen.pid)  # it may still be loading torch, and deaf
            await zygote.stop()
            if isinstance(failed, TimeoutError):
                late = f"the worker was not ready within {_START_S:g} s"
                raise NotStartedError(late) from failed
            raise
        return zygote

    @property
    def is_alive(self) -> bool:
        """Whether it can fork."""
        return self.listening is not None and not self.listening.done()

    async def fork(self, limits: Mapping[str, Any], preloads: Sequence[str] = ()) -> Process:
        """Fork a process. Raises NotStartedError if the zygote cannot, or ends before it does.

        ``preloads`` has it load first, once for all jobs that it forks later: "library" is
        transformers, "ranks" is torch.distributed.
        """
        if not self.is_alive:
            raise NotStartedError("the worker ended")
        loop = asyncio.get_running_loop()
        number = next(self.numbers)
        birth = self.births[number] = _Birth(loop.create_future(), loop.create_future())
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                order = {"job": number, "limits": dict(limits), "preloads": list(preloads)}
                frame = frames.pack(order)
                socket.send_fds(self.control, [frame], [theirs.fileno()])
            return await Process.connected(await birth.pid, ours, birth.ended)
        except OSError as gone:
            ours.close()
            raise NotStartedError("the worker ended") from gone
        except BaseException:
            ours.close()
            raise

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (message := await read_frame(reader)) is not None:
                self._take(message)
        finally:
            writer.close()
            self._mourn()

    def _take(self, message: Mapping[str, Any]) -> None:
        if "ready" in message:
            _set(self.ready, None)
        elif "forked" in message:
            _set(self.births[message["forked"]].pid, message["pid"])
        elif "refused" in message:
            birth = self.births.pop(message["refused"])
            _refuse(birth.pid, NotStartedError(f"the worker cannot fork: {message['why']}"))
        else:
            _set(self.births.pop(message["exited"]).ended, message["status"])

    def _mourn(self) -> None:
        gone = NotStartedError(tail(self.folder / _OUTPUT) or "the worker ended without a word")
        for birth in self.births.values():
            if birth.pid.done() and not birth.pid.cancelled():
                kill_group(birth.pid.result())
            _refuse(birth.pid, gone)
            _set(birth.ended, None)
        self.births.clear()
        _refuse(self.ready, gone)

    async def stop(self) -> None:
        """End it and every process that it forked."""
        # Its end closes when ours does; it then kills what is left and goes.
        with contextlib.suppress(OSError):  # it went first
            self.control.shutdown(socket.SHUT_RDWR)
        self.control.close()
        try:
            await asyncio.to_thread(self.popen.wait, _STOP_S)
        except subprocess.TimeoutExpired:
            kill_group(self.popen.pid)
            await asyncio.to_thread(self.popen.wait)
        if self.listening is not None:
            await self.listening


def _set(future: "asyncio.Future[Any]", value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _refuse(future: "asyncio.Future[Any]", why: NotStartedError) -> None:
    if not future.done():
        future.set_exception(why)
