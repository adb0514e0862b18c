"""The GPUs that jobs of this process may have, found once.

Through NVML; by the driver's device files where NVML is missing, which is said wherever it matters.
An NVML that fails leaves no GPU, and a sentence: the server goes on with CPUs.
"""

import functools
import logging
import os
import pathlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from haversack_server.gpus import nvml
from haversack_server.gpus.nvml import Gpu
from haversack_server.gpus.visible import visible

DEVICE_FILES = pathlib.Path("/dev")
_GPU_FILE = re.compile(r"nvidia(\d+)")
_log = logging.getLogger(__name__)
_NO_NUMBER = -1  # of a GPU that only its UUID is known of


class GpuUnavailableError(Exception):
    """A job cannot have the GPU that it asks for; says why and what would do."""


@dataclass(frozen=True, slots=True)
class Attached:
    """What was found: ``gpus[n]`` is ``cuda:n``; ``said`` is what an operator should know."""

    gpus: tuple[Gpu, ...] = ()
    said: tuple[str, ...] = ()
    by_files: bool = False

    def gpu(self, device: str) -> Gpu:
        """Give a device such as ``cuda:1``. Raises GpuUnavailableError where it is not attached."""
        index = int(device.partition(":")[2])
        if index < len(self.gpus):
            return self.gpus[index]
        raise GpuUnavailableError(f"{device} is not attached to this server, which has {self}")

    def __str__(self) -> str:
        listed = [f"cuda:{n}{f' ({gpu.name})' * bool(gpu.name)}" for n, gpu in enumerate(self.gpus)]
        return "; ".join([", ".join(listed) or "no GPU", *self.said])


@functools.cache
def attached_gpus() -> Attached:
    """Find the GPUs that CUDA_VISIBLE_DEVICES leaves to this process; the log has what was odd.

    The first call may take a second, in which NVML wakes the driver.
    """
    found = find(os.environ.get("CUDA_VISIBLE_DEVICES"))
    for sentence in found.said:
        _log.warning("GPUs: %s", sentence)
    return found


def find(allowed: str | None) -> Attached:
    """Find GPUs; ``allowed`` is CUDA_VISIBLE_DEVICES, and None allows all."""
    files = _device_files()
    try:
        there = nvml.find()
    except nvml.NvmlMissingError as missing:
        return _by_files(files, allowed, str(missing)) if files else Attached()
    except nvml.NvmlError as failed:
        return Attached(said=(f"none is used, since {failed}",))
    gpus, said = visible(there.gpus, allowed)
    return Attached(gpus, (*there.said, *said, *_of_order(there.gpus, allowed)))


def _device_files() -> list[int]:
    names = [file.name for file in DEVICE_FILES.glob("nvidia*")]
    return sorted(int(match[1]) for name in names if (match := _GPU_FILE.fullmatch(name)))


def _by_files(files: Sequence[int], allowed: str | None, why: str) -> Attached:
    """Take the driver's files for GPUs; a UUID is believed, since nobody can look it up."""
    # By its place, as CUDA counts: a container may have the file of the machine's fourth GPU alone.
    gpus = [Gpu(cuda_name=str(place), index=place) for place, _ in enumerate(files)]
    names = [name.strip() for name in (allowed or "").split(",")]
    unseen = [name for name in names if name.startswith(("GPU-", "MIG-"))]
    gpus += [Gpu(cuda_name=name, index=_NO_NUMBER, uuid=name) for name in dict.fromkeys(unseen)]
    chosen, said = visible(gpus, allowed) if allowed is not None else (tuple(gpus), ())
    sentence = (
        f"they were found by /dev/nvidiaN, since {why}: their names, their MIG instances and "
        "who else uses them are not known"
    )
    return Attached(chosen, (sentence, *said), by_files=True)


def _of_order(gpus: Sequence[Gpu], allowed: str | None) -> tuple[str, ...]:
    """Say it where numbers of CUDA_VISIBLE_DEVICES may have meant other GPUs."""
    is_by_bus = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    has_numbers = allowed is not None and any(part.strip().isdigit() for part in allowed.split(","))
    if is_by_bus or not has_numbers or len({gpu.name for gpu in gpus if not gpu.parent_uuid}) < 2:
        return ()
    return (
        "numbers in CUDA_VISIBLE_DEVICES count in the order of the bus, as nvidia-smi does, where "
        "CUDA would put the fastest first: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or give UUIDs",
    )


def check_devices(devices: Sequence[str]) -> None:
    """Raise GpuUnavailableError unless GPUs are attached, and can be of one job together."""
    gpus = [attached_gpus().gpu(device) for device in devices]
    for device, gpu in zip(devices, gpus, strict=True):
        if len(gpus) > 1 and gpu.parent_uuid:
            raise GpuUnavailableError(
                f"{device} is a MIG instance ({gpu.name}), and CUDA shows a process no more than "
                "one: a job of several needs whole GPUs"
            )
