"""The limits of a job's process that every Unix has, and how many processes it may have.

Each holds for one process; a child has the same again. Only the number of processes is of all.
"""

import contextlib
import os
import pathlib
import resource
from dataclasses import dataclass

from haversack.units import format_bytes

_LARGEST_FILE_BYTES = 2**34
_SPARE_CPU_S = 30
_FIRST_TO_DIE = "1000"  # oom_score_adj


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a job's process may take.

    ``processes`` counts threads too, beyond ``threads``; above 300. Without ``sandbox`` it gets no
    namespaces and no Landlock. With a ``gpu`` it gets no namespaces, and Landlock only where the
    GPU's driver is seen to work inside it.
    """

    scratch: str
    deadline_ns: int
    memory_bytes: int | None
    threads: int = 1
    processes: int = 400
    sandbox: bool = True
    gpu: bool = False


def limit_resources(limits: Limits) -> list[str]:
    """Limit time, memory and files of this process and of each that it starts; say how."""
    _die_first()
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_FSIZE, _LARGEST_FILE_BYTES)
    seconds = limits.deadline_ns / 1e9
    _set_limit(resource.RLIMIT_CPU, int(seconds * limits.threads) + _SPARE_CPU_S)
    largest = format_bytes(_LARGEST_FILE_BYTES)
    said = [f"Killed after {seconds:g} s; no core files; files up to {largest}"]
    if limits.memory_bytes is None:
        return [*said, "No limit on host memory: it would take a GPU's reserved addresses for it"]
    held = _held_bytes()
    if held is None:
        return [*said, "No limit on memory: this system does not say what a process holds"]
    total, data = held
    _set_limit(resource.RLIMIT_DATA, data + limits.memory_bytes)
    # Shared mappings are no data; addresses that are only reserved count, hence the room.
    _set_limit(resource.RLIMIT_AS, total + 2 * limits.memory_bytes + 2**31)
    return [*said, f"Each process may take {format_bytes(limits.memory_bytes)} of memory"]


def _set_limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (allowed, allowed))


def _held_bytes() -> tuple[int, int] | None:
    """Give this process's address space and its data, in bytes; None where there is no /proc."""
    try:
        status = pathlib.Path("/proc/self/status").read_text()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    total, data = (int(fields[name].split()[0]) * 1024 for name in ("VmSize", "VmData"))
    return total, data


def _die_first() -> None:
    """Have the kernel end jobs first, the server not at all, where the machine's memory ends."""
    with contextlib.suppress(OSError):  # /proc may be missing, or read-only
        pathlib.Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_DIE)


def limit_processes(most: int, *, held: int) -> bool:
    """Limit the processes and threads of this user to ``most`` beyond ``held``; false for root.

    The kernel does not count those of root.
    """
    if os.geteuid() == 0:
        return False
    _set_limit(resource.RLIMIT_NPROC, held + most)
    return True


def processes_of_user() -> int:
    """Count the processes and threads of this user on the whole machine; 0 without /proc."""
    found = 0
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == os.geteuid():
                found += len(os.listdir(process / "task"))
        except OSError:  # it has just ended
            continue
    return found
