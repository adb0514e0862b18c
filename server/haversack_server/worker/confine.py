"""Confines a job's process: a group of its own, limits, a scratch folder, nothing of the server.

Not contained: reading files, the network, and writing where the user may write; a report says so.
"""

import ctypes
import os
import pathlib
import resource
import signal
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass

from haversack.units import format_bytes

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_LARGEST_FILE_BYTES = 2**34
_SPARE_CPU_S = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a job's process may take."""

    scratch: str
    deadline_ns: int
    memory_bytes: int | None
    threads: int = 1


def confine(limits: Limits, *, keep: Iterable[int], parent: int | None) -> tuple[str, ...]:
    """Confine this process and whatever it starts; say how, in words.

    ``keep`` are the descriptors that stay open beside the standard ones. Where ``parent`` is given
    the process ends with it.
    """
    if os.getpid() != os.getsid(0):
        os.setsid()
    _close_others({0, 1, 2, *keep})
    _redirect(pathlib.Path(limits.scratch) / "output.txt")
    os.chdir(limits.scratch)
    os.environ["TMPDIR"] = limits.scratch
    tempfile.tempdir = None
    said = ["A process group of its own, with a scratch folder as its working folder"]
    said += _limit(limits)
    said += _control(parent)
    said.append("Not contained: reading files, the network, writing outside the scratch folder")
    return tuple(said)


def become_subreaper() -> bool:
    """Take over the orphans of jobs, so that none outlives the worker; false where unsupported."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _close_others(keep: set[int]) -> None:
    edge = 0
    for descriptor in sorted(keep):
        if edge < descriptor:  # CPython 3.11 takes the empty range from 0 to 0 for all there is
            os.closerange(edge, descriptor)
        edge = descriptor + 1
    os.closerange(edge, max(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2**16))


def _redirect(output: pathlib.Path) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.close(written)
    os.close(nothing)


def _limit(limits: Limits) -> list[str]:
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


def _control(parent: int | None) -> list[str]:
    said = ["No new privileges"] if _prctl(_PR_SET_NO_NEW_PRIVS, 1) else []
    if parent is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # it ended before the signal was set
    return said


def _prctl(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
