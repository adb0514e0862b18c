"""Processes of jobs on this machine: forked by a zygote on the CPU, started afresh on a GPU.

The zygote starts with the first CPU job and is replaced when it dies. Imports no torch.
"""

import asyncio
import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from haversack.units import format_bytes
from haversack.verify_devices import ListVerifyDevicesResponse, VerifyDevice
from haversack_server.cleanup import to_its_end
from haversack_server.gpus import nvml
from haversack_server.gpus.attached import GpuUnavailableError, attached_gpus
from haversack_server.gpus.taking import listed, take
from haversack_server.leftovers import DEEPEST, OUTPUT, remove_folder, size_of, tail
from haversack_server.places import JobProcess, Start
from haversack_server.processes import NotStartedError, Process, start_afresh
from haversack_server.verify.admissible import check_attached
from haversack_server.verify.shardable import devices_of
from haversack_server.zygote import Zygote

_LOOK_S = 1.0
_MOST_ENTRIES = 100_000  # of a scratch folder; to look at as many takes a fraction of a second


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A process, and what ends with it: its scratch folder, and that its GPUs are kept awake."""

    process: Process
    folder: pathlib.Path
    gpus: tuple[VerifyDevice, ...] = ()
    awake: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    disk_bytes: int = sys.maxsize

    @property
    def scratch(self) -> str:
        """Its scratch folder."""
        return str(self.folder)

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send it a frame."""
        await self.process.send(message)

    async def receive(self) -> dict[str, Any] | None:
        """Receive a frame; None once it has ended. Raises FrameError for what is none."""
        return await self.process.receive()

    async def status(self) -> int | None:
        """Wait for its exit status; None where nobody knows it."""
        return await self.process.status()

    async def overfilled(self) -> str:
        """Look at its scratch folder now and then, until it holds more than it may."""
        while True:
            await asyncio.sleep(_LOOK_S)
            size, entries = await asyncio.to_thread(size_of, self.folder, _MOST_ENTRIES)
            if size > self.disk_bytes:
                return (
                    f"its scratch folder held {format_bytes(size)}, more than the "
                    f"{format_bytes(self.disk_bytes)} that a job may have"
                )
            if entries > _MOST_ENTRIES:
                return (
                    f"its scratch folder held more than the {_MOST_ENTRIES:,} files and folders "
                    f"that a job may have, or folders within {DEEPEST} others"
                )

    async def close(self) -> str:
        """Kill it unless it ended, remove its scratch folder; gives the last that it printed."""
        await self.process.close()
        last_words = tail(self.folder / OUTPUT)
        await _left(self.folder, self.awake)
        return last_words


class LocalPlace:
    """Owns the zygote and the scratch folders.

    ``cpu_jobs`` may run at once, and one on each GPU. With ``is_parent`` processes that are started
    afresh end with this one, even where it is killed: for a process whose event loop runs in one
    thread to its end.
    """

    def __init__(self, cpu_jobs: int = 1, *, is_parent: bool = False) -> None:
        self._cpu_jobs = cpu_jobs
        self._parent = os.getpid() if is_parent else None
        self._folder: pathlib.Path | None = None
        self._zygote: Zygote | None = None
        self._starting = asyncio.Lock()

    @property
    def name(self) -> str:
        """What reports call it."""
        return "local"

    def check_device(self, device: str, gpus: int) -> None:
        """Raise InvalidRequestError unless this machine has as many GPUs, from the device on."""
        check_attached(device, gpus)

    async def devices(self) -> ListVerifyDevicesResponse:
        """List this machine's GPUs, as they are now."""
        found = await asyncio.to_thread(listed)
        return ListVerifyDevicesResponse(
            devices=found, notes=attached_gpus().said, executor=self.name
        )

    def width(self, device: str) -> int:
        """Give how many jobs may be started on a device at once."""
        return self._cpu_jobs if device == "cpu" else 1

    async def warm(self) -> None:
        """Start the zygote, unless it lives."""
        await self._living_zygote()

    async def close(self) -> None:
        """End the zygote and remove the folders."""
        if self._zygote is not None:
            await self._zygote.stop()
        if self._folder is not None:
            await _remove(self._folder)

    async def start(self, start: Start) -> JobProcess:
        """Start a process. Raises NotStartedError."""
        if start.device == "cpu":
            # The zygote may have died since the last job, and have taken the scratch folder with
            # it; a second death is not chance.
            with contextlib.suppress(NotStartedError):
                return await self._started(start)
        return await self._started(start)

    async def _started(self, start: Start) -> JobProcess:
        awake = contextlib.ExitStack()
        scratch = pathlib.Path(tempfile.mkdtemp(dir=self._home()))
        disk_bytes = start.disk_bytes or shutil.disk_usage(scratch).free // 2
        try:
            gpus = await _taken(start, awake) if start.device != "cpu" else ()
            process = await self._process(start, limits_of(start, scratch), gpus)
        except BaseException:
            await to_its_end(_left(scratch, awake))
            raise
        return LocalProcess(process, scratch, gpus, awake, disk_bytes)

    async def _process(
        self, start: Start, limits: Mapping[str, Any], gpus: tuple[VerifyDevice, ...]
    ) -> Process:
        if gpus:
            names = ",".join(attached_gpus().gpu(each.device).cuda_name for each in gpus)
            return await start_afresh(limits, gpu=names, parent=self._parent)
        return await self._fork(start, limits)

    async def _fork(self, start: Start, limits: Mapping[str, Any]) -> Process:
        zygote = await self._living_zygote()
        return await zygote.fork(limits, start.preloads)

    async def _living_zygote(self) -> Zygote:
        async with self._starting:
            if self._zygote is not None and not self._zygote.is_alive:
                await self._zygote.stop()
                self._zygote = None
            if self._zygote is None:
                self._zygote = await Zygote.start(self._home())
            return self._zygote

    def _home(self) -> pathlib.Path:
        # What tidies up temporary folders may have taken it from a server that long had no job.
        if self._folder is None or not self._folder.is_dir():
            self._folder = pathlib.Path(tempfile.mkdtemp(prefix="haversack-jobs-"))
        return self._folder


def limits_of(start: Start, scratch: pathlib.Path) -> Mapping[str, Any]:
    """Give the limits of a job's process on this machine."""
    most = start.most_memory_bytes or half_of_memory()
    is_on_cpu = start.device == "cpu"
    return {
        "scratch": str(scratch),
        "deadline_ns": start.deadline_ns,
        "memory_bytes": min(start.memory_bytes or most, most) if is_on_cpu else None,
        "threads": start.threads,
        "sandbox": is_on_cpu or start.ranks == 1,
        "gpu": not is_on_cpu,
    }


def half_of_memory() -> int:
    """Give half of the machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


async def _taken(start: Start, awake: contextlib.ExitStack) -> tuple[VerifyDevice, ...]:
    """Wake the GPUs of a job and look at them, off the event loop: that may take seconds."""
    devices = devices_of(start.device, start.gpus)

    def woken() -> tuple[VerifyDevice, ...]:
        uuids = [attached_gpus().gpu(device).uuid for device in devices]
        awake.enter_context(nvml.awake(filter(None, uuids)))
        return take(devices)

    try:
        return await asyncio.to_thread(woken)
    except GpuUnavailableError as missing:
        raise NotStartedError(str(missing)) from missing


async def _left(scratch: pathlib.Path, awake: contextlib.ExitStack) -> None:
    """Remove a job's folder, and let its GPUs sleep."""
    await _remove(scratch)
    await asyncio.to_thread(awake.close)


async def _remove(folder: pathlib.Path) -> None:
    await asyncio.to_thread(remove_folder, folder)
