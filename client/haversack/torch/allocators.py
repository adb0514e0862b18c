"""The highest allocated bytes of each place of a real step, as its device's allocator has them.

CUDA's allocator keeps a peak, which is read and reset at every change of place. The CPU's tells
PyTorch's profiler of each block that it takes and gives back, workspaces of kernels included; what
was there before the step is added up from the tensors that are known. Knows no model and no plan.
"""

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd.profiler import record_function

from haversack.torch.boundaries import Place

_MARK = "haversack place "
_LEVEL = "KINETO_LOG_LEVEL"  # read by the profiler's library when it is first used
_NOTHING = "6"  # above USDT, its highest, by which it tells that a profile began and ended


class Reader(ABC):
    """Watches one step; ``moved`` is told of each change of place."""

    method: str

    def __init__(self) -> None:
        self.peaks: dict[Place, int] = {}

    @abstractmethod
    def run(self, step: Callable[[], object]) -> None:
        """Run the step under watch."""

    @abstractmethod
    def moved(self, place: Place) -> None:
        """Note that a place begins."""

    def reserved_bytes(self) -> int | None:
        """Give the most that the allocator held for itself and others; None where it says none."""
        return None

    def _add(self, place: Place, peak_bytes: int) -> None:
        self.peaks[place] = max(peak_bytes, self.peaks.get(place, 0))


class CudaReader(Reader):
    """Reads the statistics of CUDA's caching allocator, which count what is live, to 512 bytes."""

    method = "CUDA's allocator, its peak at every boundary"

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self._place: Place | None = None
        self._reserved = 0

    def run(self, step: Callable[[], object]) -> None:
        """Run the step; the device is waited for before and after."""
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        step()
        torch.cuda.synchronize(self._device)
        self._read()

    def moved(self, place: Place) -> None:
        """Read the place that ends, and begin another."""
        self._read()
        self._place = place

    def _read(self) -> None:
        # Allocations happen when kernels are launched, so there is nothing to wait for.
        if self._place is not None:
            self._add(self._place, torch.cuda.max_memory_allocated(self._device))
        self._reserved = max(self._reserved, torch.cuda.max_memory_reserved(self._device))
        torch.cuda.reset_peak_memory_stats(self._device)

    def reserved_bytes(self) -> int | None:
        """Give the most that the allocator reserved."""
        return self._reserved


class CpuReader(Reader):
    """Adds up what the CPU's allocator took and gave back, as the profiler heard of it."""

    method = "the CPU's allocator, every block it took and gave back, by PyTorch's profiler"

    def __init__(self, standing_bytes: Callable[[], int]) -> None:
        super().__init__()
        self._standing_bytes = standing_bytes
        self._places: list[Place] = []

    def run(self, step: Callable[[], object]) -> None:
        """Run the step under the profiler."""
        live = self._standing_bytes()
        activities = [torch.profiler.ProfilerActivity.CPU]
        profile = torch.profiler.profile(activities=activities, profile_memory=True)
        with _silence(), profile as profiler:
            step()
        results: Any = profiler.profiler
        events = sorted(results.kineto_results.events(), key=lambda event: event.start_ns())
        place: Place | None = None
        for event in events:
            name = event.name()
            if name.startswith(_MARK):
                place = self._places[int(name.removeprefix(_MARK))]
            elif name == "[memory]":
                live += event.nbytes()
            if place is not None:
                self._add(place, live)

    def moved(self, place: Place) -> None:
        """Leave a mark among the profiler's events."""
        with record_function(f"{_MARK}{len(self._places)}"):
            self._places.append(place)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Have the profiler's library write nothing to standard error, unless the caller asked it."""
    if _LEVEL in os.environ:
        yield
        return
    os.environ[_LEVEL] = _NOTHING
    try:
        yield
    finally:
        del os.environ[_LEVEL]
