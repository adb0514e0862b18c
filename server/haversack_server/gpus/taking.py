"""How an attached GPU is right now: may a job have it, and who else is on it.

Looks anew each time, since compute modes, other processes and MIG instances come and go while a
server runs. Says what it sees and decides only where CUDA could not start at all.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence

from haversack.units import format_bytes
from haversack.verify_devices import VerifyDevice
from haversack_server.gpus import attached, nvml
from haversack_server.gpus.attached import Attached, GpuUnavailableError
from haversack_server.gpus.nvml import EXCLUSIVE_PROCESS, PROHIBITED, Gpu, Use

# What an idle GPU shows as used is a few MB; a CUDA context alone is hundreds.
_IDLE_BYTES = 64 * 2**20
_GONE = "it was lost, or divided anew; restart the server to find what is there now"


def take(devices: Sequence[str]) -> tuple[VerifyDevice, ...]:
    """Look at the GPUs of a job that begins. Raises GpuUnavailableError for one it cannot have."""
    attached.check_devices(devices)
    there = attached.attached_gpus()
    try:
        uses = {} if there.by_files else nvml.uses()
    except nvml.NvmlError as failed:
        raise GpuUnavailableError(f"{', '.join(devices)} cannot be looked at: {failed}") from failed
    for device in devices:
        if not there.by_files:
            _check_usable(device, there.gpu(device), uses.get(there.gpu(device).uuid))
    return tuple(_seen(device, there, uses) for device in devices)


def _check_usable(device: str, gpu: Gpu, use: Use | None) -> None:
    if use is None:
        raise GpuUnavailableError(f"{device} ({gpu.name}, {gpu.uuid}) is no more: {_GONE}")
    if use.compute_mode == PROHIBITED:
        raise GpuUnavailableError(
            f"{device} ({gpu.name}, {gpu.uuid}) is in compute mode {PROHIBITED}, in which no "
            "process may use it: nvidia-smi --compute-mode=DEFAULT would change that"
        )


def listed() -> tuple[VerifyDevice, ...]:
    """Look at every GPU that is attached."""
    there = attached.attached_gpus()
    devices = [f"cuda:{index}" for index in range(len(there.gpus))]
    try:
        uses = nvml.uses() if devices and not there.by_files else {}
    except nvml.NvmlError as failed:
        return tuple(_noun(device, there.gpu(device), str(failed)) for device in devices)
    return tuple(_seen(device, there, uses) for device in devices)


def _seen(device: str, there: Attached, uses: Mapping[str, Use]) -> VerifyDevice:
    gpu = there.gpu(device)
    if there.by_files:
        return _noun(device, gpu, *there.said)
    use = uses.get(gpu.uuid)
    if use is None:
        return _noun(device, gpu, f"it is no more: {_GONE}")
    return _noun(device, gpu, *_said_of(use), compute_mode=use.compute_mode)


def _noun(device: str, gpu: Gpu, *notes: str, compute_mode: str = "") -> VerifyDevice:
    return VerifyDevice(
        device=device,
        name=gpu.name,
        uuid=gpu.uuid,
        parent_uuid=gpu.parent_uuid,
        memory_bytes=gpu.memory_bytes,
        compute_mode=compute_mode,
        notes=notes,
    )


def _said_of(use: Use) -> list[str]:
    """Say who else is on a GPU, and what that means."""
    said = [f"{_process(pid)} is on it{_holding(size)}" for pid, size in use.processes]
    if not said and use.used_bytes is not None and use.used_bytes > _IDLE_BYTES:
        said = [
            f"{format_bytes(use.used_bytes)} of its memory are in use, by no process that can be "
            "seen from here"
        ]
    if said and use.compute_mode == EXCLUSIVE_PROCESS:
        said.append(f"its compute mode is {EXCLUSIVE_PROCESS}: another process cannot open it")
    return said


def _process(pid: int) -> str:
    """Name a process; one of another namespace, or that has ended, by its number alone."""
    if pid == os.getpid():
        return "this server's own process"
    folder = pathlib.Path("/proc", str(pid))
    try:
        name = (folder / "comm").read_text().strip()
        parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return f"process {pid}"
    owner = ", started by this server" if parent == os.getpid() else ""
    return f"process {pid} ({name}{owner})"


def _holding(size_bytes: int | None) -> str:
    return "" if size_bytes is None else f", with {format_bytes(size_bytes)} of its memory"
