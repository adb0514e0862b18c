"""The server's end of a job's process: its channel, its exit status, its death.

Knows sockets, signals and how ``python -m haversack_server.worker`` is started; knows nothing of
what a job does, and imports no torch.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any

import haversack_kernels
from haversack import verify
from haversack_server.verify import frames

_END_S = 5.0
_LAST_WORDS_S = 0.5
_LARGEST_FRAME = 2**23  # bytes; its parsing holds the server's loop, and reports are far smaller
_NOT_THEIRS = ("HAVERSACK_", "RAY_")
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_ON_GPUS = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # that of NVML, where GPUs have no better names than numbers
    # torch.cuda.is_available() by NVML: by CUDA it leaves a process whose forks can use no GPU.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "0",  # of all of a GPU's memory, at a failed assert
}


class NotStartedError(Exception):
    """A worker did not start, or ended before it could fork."""


@dataclass(slots=True, eq=False)
class Process:
    """A job's process. ``ended`` gets its exit status, or None where nobody knows it."""

    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ended: "asyncio.Future[int | None]"

    @classmethod
    async def connected(
        cls, pid: int, channel: socket.socket, ended: "asyncio.Future[int | None]"
    ) -> "Process":
        """Take over the server's end of a channel."""
        reader, writer = await asyncio.open_unix_connection(sock=channel)
        return cls(pid, reader, writer, ended)

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send a frame; a process that is gone takes none."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(frames.pack(message))
            await self.writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Receive a frame; None once the process has ended or closed its end."""
        reading = asyncio.ensure_future(read_frame(self.reader))
        try:
            await asyncio.wait((reading, self.ended), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                # Its last words may be on the way; but what it left behind may keep the channel
                # open for ever.
                await asyncio.wait((reading,), timeout=_LAST_WORDS_S)
            return reading.result() if reading.done() else None
        finally:
            reading.cancel()

    async def status(self) -> int | None:
        """Wait for the exit status; None where nobody knows it."""
        await asyncio.wait((self.ended,), timeout=_END_S)
        return self.ended.result() if self.ended.done() else None

    async def close(self) -> None:
        """Kill it and its group unless it ended, wait for its end, close the channel."""
        if not self.ended.done():
            kill_group(self.pid)
        await self.status()
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def kill_group(pid: int) -> None:
    """Kill a process that leads a group, and the group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it does not lead one yet, or has just ended
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Read a frame; None where the other end closed or was killed, inside a frame too."""
    try:
        header = await reader.readexactly(frames.HEADER_BYTES)
        size = frames.body_size(header, most_bytes=_LARGEST_FRAME)
        return frames.unpack_text(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def start_afresh(
    limits: Mapping[str, Any], gpu: str, order: str = "job", parent: int | None = None
) -> Process:
    """Start a process for one job that sees these GPUs, or none if ``gpu`` is empty.

    ``order`` is what it takes: a Verify "job", a "trace", or a workload for a "plan". A job ends
    with the thread that calls this, of the process ``parent``, if that is given.
    """
    ours, theirs = socket.socketpair()
    arguments = [f"--{order}-fd", str(theirs.fileno()), "--limits", json.dumps(limits)]
    if parent is not None:
        arguments += ["--parent", str(parent)]
    with theirs:
        popen = start_worker(arguments, theirs, pathlib.Path(limits["scratch"]), gpu=gpu)
    ended = asyncio.ensure_future(_ended(popen))
    return await Process.connected(popen.pid, ours, ended)


async def _ended(popen: subprocess.Popen[bytes]) -> int | None:
    return await asyncio.to_thread(popen.wait)


def start_worker(
    arguments: list[str],
    inherited: socket.socket,
    folder: pathlib.Path,
    *,
    gpu: str = "",
    output: IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:
    """Start the worker program as leader of a group; it inherits one socket and nothing else."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "haversack_server.worker", *arguments],
        pass_fds=[inherited.fileno()],
        cwd=folder,
        env=_environment(gpu) | {"TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=output or subprocess.DEVNULL,
        stderr=output or subprocess.DEVNULL,
        start_new_session=True,
    )


def _environment(gpu: str) -> dict[str, str]:
    """Give the worker's variables: none of ours, since they may hold secrets."""
    kept = {n: value for n, value in os.environ.items() if not n.startswith(_NOT_THEIRS)}
    files = (__file__, verify.__file__, haversack_kernels.__file__)
    packages = [pathlib.Path(file).parent for file in files]
    return {
        **kept,
        **dict.fromkeys(_ONE_THREAD, "1"),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # or deterministic algorithms refuse to run
        "PYTHONPATH": import_path(kept, packages),
        "PYTHONHASHSEED": "0",
        "CUDA_VISIBLE_DEVICES": gpu,
        **(_ON_GPUS if gpu else {}),
    }


def import_path(given: Mapping[str, str], packages: Iterable[pathlib.Path]) -> str:
    """Give a worker's PYTHONPATH: it finds packages where this process did, installed or not.

    ``given`` are the variables that it inherits; its folder is another, so all are absolute.
    """
    before = [part for part in given.get("PYTHONPATH", "").split(os.pathsep) if part]
    folders = [*(package.parent for package in packages), *map(pathlib.Path, before)]
    return os.pathsep.join(dict.fromkeys(str(folder.resolve()) for folder in folders))
