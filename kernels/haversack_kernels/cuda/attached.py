"""Which CUDA device is attached, without touching it: no context, no memory, no kernel.

Asks NVML, which survives a fork and takes none of the device's memory; without ``nvidia-ml-py``,
the CUDA driver through numba. Knows nothing of what is solved.
"""

import importlib
import importlib.util
import os
from typing import Any, NamedTuple


class Device(NamedTuple):
    """Describe the device that a solve in this process would use.

    ``free_bytes`` and ``driver`` are None where only the CUDA driver could be asked.
    """

    name: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    free_bytes: int | None
    driver: str | None


def device() -> Device | None:
    """Return the first visible CUDA device, or None where numba-cuda or a device is missing.

    ``CUDA_VISIBLE_DEVICES`` is heeded. Never raises. The simulator is no device.
    """
    simulated = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
    if simulated or _first_visible() in ("", "-1") or not _installed("numba_cuda"):
        return None
    return _by_nvml() if _installed("pynvml") else _by_driver()


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _first_visible() -> str:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()


def _by_nvml() -> Device | None:
    nvml: Any = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver, so no device
        return None
    try:
        handle = _handle(nvml)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        return Device(
            name=_text(nvml.nvmlDeviceGetName(handle)),
            compute_capability=(int(major), int(minor)),
            memory_bytes=int(memory.total),
            free_bytes=int(memory.free),
            driver=_text(nvml.nvmlSystemGetDriverVersion()),
        )
    except nvml.NVMLError:  # a driver, but no such device, or one that does not answer
        return None
    finally:
        nvml.nvmlShutdown()


def _handle(nvml: Any) -> Any:
    """Return the first device that CUDA may see, named by its index or its UUID.

    The index counts in the order of the bus, as CUDA does with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.
    """
    first = _first_visible()
    if first.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(first))
    return nvml.nvmlDeviceGetHandleByUUID(first.encode())


def _by_driver() -> Device | None:
    try:
        cuda: Any = importlib.import_module("numba.cuda")
        driver: Any = importlib.import_module("numba.cuda.cudadrv.driver").driver
    except (ImportError, RuntimeError):  # numba-cuda without what it stands on
        return None
    if not cuda.is_available():
        return None
    first = cuda.gpus[0]
    major, minor = first.compute_capability
    memory = int(driver.cuDeviceTotalMem(first.id))
    return Device(_text(first.name), (int(major), int(minor)), memory, free_bytes=None, driver=None)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
