"""Kernels in order on one stream, with a cancel flag, progress, and errors that say what happened.

The host runs a bounded number of launches ahead of the device, so that a cancel flag stops a solve
soon and progress means work done. Knows nothing of what the kernels do.
"""

import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import CancelFlag, flag
from haversack_kernels.cuda.calls import Call, Part
from haversack_kernels.cuda.compiled import cuda, simulated, with_shared_memory
from haversack_kernels.cuda.errors import DeviceFaultError, NoDeviceError
from haversack_kernels.dense_rows import Watch
from haversack_kernels.errors import SolveCancelled

BATCH_LAUNCHES = 16
"""Launches that are awaited together; two such batches are under way at most."""

BATCH_CELLS = 1 << 33
"""Cells after which a batch ends early: some 10 to 50 ms."""

ALIGNED_BYTES = 256
"""Where an array within a buffer may begin, as memory of its own does."""

RESERVE_BYTES = 256 << 20
"""Of the free memory, what is left for the driver, compiled code and other processes."""

_NOT_STICKY = {"CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}
_faults: list[str] = []  # the sticky ones of this process: one is enough


def watch(cancel: CancelFlag | None, progress: object) -> Watch:
    """Return what the caller sees of a solve; raise if it is cancelled already."""
    if progress is None:
        progress = np.zeros(2, dtype=np.int64)
    if not isinstance(progress, np.ndarray) or (progress.dtype, progress.shape) != (np.int64, (2,)):
        raise TypeError("progress is not an int64 array of two elements")
    progress[:] = 0
    watched = Watch(flag(cancel), progress)
    if watched.cancel[0]:
        raise SolveCancelled(0)
    return watched


@contextmanager
def on_device() -> Iterator[None]:
    """Turn what the driver reports inside into ``MemoryError`` or ``DeviceFaultError``.

    Raises ``NoDeviceError`` if there is no device.
    """
    if _faults:
        raise _fault(_faults[0], sticky=True)
    if not simulated() and not cuda.is_available():
        raise NoDeviceError("no CUDA device can be used: solve on the CPU")
    try:
        yield
    except (MemoryError, DeviceFaultError):
        raise
    except Exception as error:
        named = re.search(r"CUDA_ERROR_\w+", str(error))
        if named is None:
            raise
        if named[0] == "CUDA_ERROR_OUT_OF_MEMORY":
            raise MemoryError(str(error)) from error
        sticky = named[0] not in _NOT_STICKY
        if sticky:
            _faults.append(named[0])
        raise _fault(named[0], sticky=sticky) from error


def _fault(name: str, *, sticky: bool) -> DeviceFaultError:
    after = "this process can use it no more, another can" if sticky else "solve on the CPU"
    return DeviceFaultError(f"the CUDA device failed with {name}: {after}", sticky=sticky)


def forget_faults() -> None:
    """Let this process try the device again: for tests, whose faults are made up."""
    _faults.clear()


def free_bytes() -> int | None:
    """Return the memory that a solve may take now; None in the simulator, which knows no end."""
    if simulated():
        return None
    return max(int(cuda.current_context().get_memory_info().free) - RESERVE_BYTES, 0)


class Queue:
    """Send kernels to the device, each after the one before."""

    def __init__(self, watched: Watch) -> None:
        self._watch = watched
        self._stream = cuda.stream()
        self._under_way: deque[tuple[Any, int, int]] = deque()
        self._launches = self._rows = self._cells = 0
        self._shared: dict[Any, int] = {}
        self._calls: dict[Any, Call] = {}

    def upload(self, array: NDArray[Any]) -> Any:
        """Return a copy of ``array`` on the device."""
        return cuda.to_device(np.ascontiguousarray(array), stream=self._stream)

    def upload_together(self, *arrays: NDArray[Any]) -> list[Any]:
        """Return copies of ``arrays`` on the device that only kernels read, in one transfer."""
        contiguous = [np.ascontiguousarray(array) for array in arrays]
        if simulated():
            return [self.upload(array) for array in contiguous]
        ends = ALIGNED_BYTES * np.cumsum([-(-each.nbytes // ALIGNED_BYTES) for each in contiguous])
        packed = np.empty(max(int(ends[-1]), ALIGNED_BYTES), dtype=np.uint8)
        begins = [0, *ends[:-1].tolist()]
        for begin, array in zip(begins, contiguous, strict=True):
            packed[begin : begin + array.nbytes] = array.reshape(-1).view(np.uint8)
        buffer = self.upload(packed)
        return [Part(buffer, *each) for each in zip(begins, contiguous, strict=True)]

    def new(self, shape: int | tuple[int, ...], dtype: Any) -> Any:
        """Return memory on the device, not set to anything."""
        return cuda.device_array(shape, dtype, stream=self._stream)

    def download(self, array: Any) -> NDArray[Any]:
        """Return a copy of a device's array, once all that was sent is done."""
        host: NDArray[Any] = array.copy_to_host(stream=self._stream)
        self._stream.synchronize()
        return host

    def launch(
        self,
        kernel: Any,
        signature: tuple[Any, ...],
        grid: tuple[int, int],
        threads: int,
        *arguments: Any,
        shared_bytes: int = 0,
    ) -> None:
        """Send one kernel; nothing where the grid is empty."""
        if not all(grid):
            return
        if self._shared.get(kernel, 0) < shared_bytes:
            with_shared_memory(kernel, signature, shared_bytes)
            self._shared[kernel] = shared_bytes
        if signature and not simulated():
            call = self._call(kernel, signature, arguments)
            call.launch(grid, threads, int(self._stream), shared_bytes)
        else:
            kernel[grid, threads, self._stream, shared_bytes](*arguments)
        self._launches += 1

    def _call(self, kernel: Any, signature: tuple[Any, ...], arguments: tuple[Any, ...]) -> Call:
        """Return the call that launched this kernel last if it took these arrays, or a new one."""
        call = self._calls.get(kernel)
        if call is None or not call.takes(arguments):
            call = self._calls[kernel] = Call(kernel, signature, arguments)
        return call

    def done_with(self, rows: int, cells: int) -> None:
        """Count what was sent; heed the cancel flag; wait for the device if it is far behind."""
        self._rows, self._cells = self._rows + rows, self._cells + cells
        if self._launches >= BATCH_LAUNCHES or self._cells >= BATCH_CELLS:
            event = cuda.event()
            event.record(self._stream)
            self._under_way.append((event, self._rows, self._cells))
            self._launches = self._rows = self._cells = 0
        self._await(2)

    def drain(self) -> None:
        """Wait for all that was sent."""
        self._await(0)
        self._stream.synchronize()
        self._watch.progress[0] += self._rows
        self._watch.cells += self._cells
        self._launches = self._rows = self._cells = 0

    def _await(self, left: int) -> None:
        """Wait until so many batches are under way; raise if the solve is cancelled."""
        while len(self._under_way) > left:
            event, rows, cells = self._under_way.popleft()
            event.synchronize()
            self._watch.progress[0] += rows
            self._watch.cells += cells
        if self._watch.cancel[0]:
            self._stream.synchronize()  # what was sent uses memory that is given back next
            raise SolveCancelled(self._watch.cells)
