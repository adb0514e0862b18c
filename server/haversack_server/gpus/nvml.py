"""GPUs and their parts as NVIDIA's management library (NVML) describes them.

Asks through ``nvidia-ml-py``, and closes what it opened: the library starts no context, takes no
memory of a GPU and survives a fork. Knows nothing of CUDA_VISIBLE_DEVICES, nor of jobs.
"""

import contextlib
import importlib
import importlib.util
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

PROHIBITED, EXCLUSIVE_PROCESS = "PROHIBITED", "EXCLUSIVE_PROCESS"
# nvmlComputeMode_t of nvml.h; 1, one thread alone, is of drivers before 2011.
_MODES = {0: "DEFAULT", 1: "EXCLUSIVE_THREAD", 2: PROHIBITED, 3: EXCLUSIVE_PROCESS}
Answer = TypeVar("Answer")
_lock = threading.Lock()  # nvidia-ml-py counts its users without one


class NvmlError(Exception):
    """NVML does not answer; says why, in its own words."""


class NvmlMissingError(NvmlError):
    """There is no NVML to be asked: no package, or no library of a driver."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A GPU, or a MIG instance of one.

    ``cuda_name`` is what CUDA_VISIBLE_DEVICES calls it: the UUID, where that is known. ``index`` is
    NVML's number of the GPU, in the order of the bus as nvidia-smi has it; its instances share it.
    ``parent_uuid`` is that of the GPU which an instance is a part of.
    """

    cuda_name: str
    index: int
    name: str = ""
    uuid: str = ""
    parent_uuid: str = ""
    memory_bytes: int | None = None
    compute_mode: str = ""


class Use(NamedTuple):
    """What a GPU is in use for now: by which processes, and how much memory (None: not said)."""

    compute_mode: str
    used_bytes: int | None
    processes: tuple[tuple[int, int | None], ...]


class Found(NamedTuple):
    """The GPUs that answer, and a sentence for each that does not."""

    gpus: tuple[Gpu, ...]
    said: tuple[str, ...]


class _Held(NamedTuple):
    gpu: Gpu
    handle: Any


class _Memory(NamedTuple):
    total_bytes: int | None
    used_bytes: int | None


def find() -> Found:
    """List the GPUs of this machine, MIG instances in place of a GPU that is divided.

    Raises NvmlError, or NvmlMissingError where nothing can be asked.
    """
    said: list[str] = []
    with _opened() as nvml:
        gpus = tuple(held.gpu for held in _held(nvml, said))
    return Found(gpus, tuple(said))


def uses() -> Mapping[str, Use]:
    """Look at every GPU that answers as it is now, by UUID. Raises NvmlError."""
    with _opened() as nvml:
        return {held.gpu.uuid: _use(nvml, held) for held in _held(nvml, [])}


def _use(nvml: Any, held: _Held) -> Use:
    used_bytes = _memory(nvml, held.handle).used_bytes
    return Use(held.gpu.compute_mode, used_bytes, _processes(nvml, held.handle))


@contextlib.contextmanager
def awake(uuids: Iterable[str]) -> Iterator[None]:
    """Keep GPUs from being shut down while this is entered; nothing happens without NVML.

    Without persistence mode the driver shuts a GPU down when its last user ends, and takes a second
    or more to start it for the next: each run of a job is one.
    """
    try:
        nvml = _begun()
    except NvmlError:
        yield
        return
    try:
        for uuid in uuids:
            with contextlib.suppress(nvml.NVMLError):  # one that was lost is found out elsewhere
                nvml.nvmlDeviceGetHandleByUUID(uuid)
        yield
    finally:
        with _lock:
            _end(nvml)


@contextlib.contextmanager
def _opened() -> Iterator[Any]:
    nvml = _begun()
    with _lock:
        try:
            yield nvml
        except nvml.NVMLError as failed:
            raise _error(failed) from failed
        finally:
            _end(nvml)


def _begun() -> Any:
    """Initialize NVML, which counts how often; ``_end`` takes one back."""
    nvml = _library()
    with _lock:
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as failed:
            if failed.value == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
                raise NvmlMissingError("there is no libnvidia-ml.so.1") from failed
            raise _error(failed) from failed
    return nvml


def _end(nvml: Any) -> None:
    with contextlib.suppress(nvml.NVMLError):  # what it had to say, it said before
        nvml.nvmlShutdown()


def _library() -> Any:
    if importlib.util.find_spec("pynvml") is None:
        raise NvmlMissingError("nvidia-ml-py is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an older package of that module warns of its own name
        nvml: Any = importlib.import_module("pynvml")
    if not hasattr(nvml, "nvmlMemory_v2"):
        raise NvmlMissingError("the installed pynvml is too old; install nvidia-ml-py instead")
    return nvml


def _error(failed: Exception) -> NvmlError:
    return NvmlError(f"NVML says: {str(failed).rstrip('.')}")


def _held(nvml: Any, said: list[str]) -> Iterator[_Held]:
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            whole = _described(nvml, index, handle)
            parts = _instances(nvml, whole) if _is_divided(nvml, handle) else None
        except nvml.NVMLError as failed:  # one that fell off the bus; the others go on
            said.append(f"GPU {index} does not answer: {_error(failed)}")
            continue
        if parts == []:
            said.append(f"GPU {index} ({whole.gpu.name}) is in MIG mode and has no instance")
        yield from [whole] if parts is None else parts


def _described(nvml: Any, index: int, handle: Any) -> _Held:
    uuid = str(nvml.nvmlDeviceGetUUID(handle))
    mode = _if_known(nvml, lambda: nvml.nvmlDeviceGetComputeMode(handle))
    gpu = Gpu(
        cuda_name=uuid,
        index=index,
        name=str(nvml.nvmlDeviceGetName(handle)),
        uuid=uuid,
        memory_bytes=_memory(nvml, handle).total_bytes,
        compute_mode="" if mode is None else _MODES.get(mode, str(mode)),
    )
    return _Held(gpu, handle)


def _is_divided(nvml: Any, handle: Any) -> bool:
    modes = _if_known(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle))  # now, and after a reset
    return modes is not None and modes[0] == nvml.NVML_DEVICE_MIG_ENABLE


def _instances(nvml: Any, whole: _Held) -> list[_Held]:
    """Describe the instances of a GPU; its compute mode is theirs."""
    found = []
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(whole.handle)):
        handle = _if_known(nvml, _instance_at(nvml, whole.handle, place))
        if handle is not None:
            part = _described(nvml, whole.gpu.index, handle).gpu
            uuid, mode = whole.gpu.uuid, whole.gpu.compute_mode
            found.append(_Held(replace(part, parent_uuid=uuid, compute_mode=mode), handle))
    return found


def _instance_at(nvml: Any, handle: Any, place: int) -> Callable[[], Any]:
    return lambda: nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)


def _memory(nvml: Any, handle: Any) -> _Memory:
    """Ask for bytes of memory; an old driver counts its own reserve as used, which says nothing."""
    version = nvml.nvmlMemory_v2
    told = _if_known(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=version))
    if told is not None:
        return _Memory(int(told.total), int(told.used))
    told = _if_known(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return _Memory(None if told is None else int(told.total), None)


def _processes(nvml: Any, handle: Any) -> tuple[tuple[int, int | None], ...]:
    told = _if_known(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    return tuple((int(each.pid), each.usedGpuMemory) for each in told or ())


def _if_known(nvml: Any, ask: Callable[[], Answer]) -> Answer | None:
    """Ask; None where this GPU, driver or user cannot be told."""
    try:
        return ask()
    except nvml.NVMLError as refused:
        if refused.value in (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_NOT_FOUND,
            nvml.NVML_ERROR_NO_PERMISSION,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_UNKNOWN,  # of a sandbox that passes on some calls alone, as gVisor does
        ):
            return None
        raise
