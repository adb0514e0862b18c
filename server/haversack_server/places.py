"""Where the processes of jobs run, as the executor sees it: on this machine, or on a cluster's.

A place starts a process and carries its frames; what a job is asked, how long it may take and what
its end means stays with the executor, which is the same everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from haversack.verify_devices import ListVerifyDevicesResponse, VerifyDevice


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What a place must know to start a job's process; it travels as JSON.

    ``memory_bytes`` is what the request asks for, ``most_memory_bytes`` what the operator allows:
    half of the machine's memory if None. ``disk_bytes`` its scratch folder may hold: half of what
    is free at the start if None. ``ranks`` are its processes, each of ``threads``, and
    ``device_count`` the GPUs of one that has several. ``preloads`` name what takes seconds to load.
    """

    job_id: str
    device: str
    deadline_ns: int
    memory_bytes: int | None = None
    most_memory_bytes: int | None = None
    disk_bytes: int | None = None
    threads: int = 1
    ranks: int = 1
    device_count: int = 1
    preloads: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """How many GPUs it has where its device is one."""
        return max(self.ranks, self.device_count)


class JobProcess(Protocol):
    """A job's process; one that is gone takes no frame and gives none."""

    @property
    def scratch(self) -> str:
        """Its scratch folder, on the machine that it runs on."""
        ...

    @property
    def gpus(self) -> tuple[VerifyDevice, ...]:
        """The GPUs that it has, as they were right before it; none on the CPU."""
        ...

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send it a frame."""
        ...

    async def receive(self) -> dict[str, Any] | None:
        """Receive a frame; None once it has ended. Raises FrameError for what is none."""
        ...

    async def status(self) -> int | None:
        """Wait for its exit status; None where nobody knows it."""
        ...

    async def overfilled(self) -> str:
        """Wait until its scratch folder holds more than it may, and say so; else for ever."""
        ...

    async def close(self) -> str:
        """Kill it unless it ended, remove its scratch folder; gives the last that it printed."""
        ...


class Place(Protocol):
    """Starts the processes of jobs."""

    @property
    def name(self) -> str:
        """What reports call it: "local" or "ray"."""
        ...

    def check_device(self, device: str, gpus: int) -> None:
        """Raise InvalidRequestError if no job can have the device, or so many GPUs from it on."""
        ...

    async def devices(self) -> ListVerifyDevicesResponse:
        """List the GPUs that jobs may have, as they are now."""
        ...

    def width(self, device: str) -> int:
        """Give how many jobs may be started on a device at once; the others wait for them."""
        ...

    async def warm(self) -> None:
        """Do now what the first job would wait for. Raises HaversackError if it cannot be done."""
        ...

    async def start(self, start: Start) -> JobProcess:
        """Start a process, as soon as there is room. Raises NotStartedError."""
        ...

    async def close(self) -> None:
        """Leave no process behind."""
        ...
