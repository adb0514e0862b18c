"""The probes of a watched run: who draws random numbers in a region, and what a step holds.

Who draws explains and decides nothing; what is held is the facet of memory.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import _disable_current_modes

from haversack.verify import RandomSource
from haversack_server.worker import rng
from haversack_server.worker.regions import Call


@dataclass(slots=True)
class RandomWatch:
    """Takes the states of all generators at every entry into a region and at its end."""

    held: Mapping[str, Any]
    drawn_in_forward: set[str] = field(default_factory=set)
    drawn_in_replay: set[str] = field(default_factory=set)
    not_restored: set[str] = field(default_factory=set)
    _open: list[dict[str, str]] = field(default_factory=list)
    _first: dict[int, dict[str, str]] = field(default_factory=dict)

    def entered(self, call: Call, given: Mapping[str, object]) -> None:
        """Take the states that an entry begins with."""
        states = self._states()
        self._open.append(states)
        first = self._first.setdefault(id(call), states)
        self.not_restored |= {name for name in states if states[name] != first.get(name)}

    def left(self, call: Call) -> None:
        """Find which states moved since the entry."""
        before, after = self._open.pop(), self._states()
        drawn = {name for name in after if after[name] != before.get(name)}
        if call.is_replay:
            self.drawn_in_replay |= drawn
        else:
            self.drawn_in_forward |= drawn

    def sources(self) -> tuple[RandomSource, ...]:
        """Say for each source that a region drew from who drew, and whether it was restored."""
        return tuple(
            RandomSource(
                source=name,
                drawn_in_forward=name in self.drawn_in_forward,
                drawn_in_replay=name in self.drawn_in_replay,
                restored=name not in self.not_restored,
            )
            for name in sorted(self.drawn_in_forward | self.drawn_in_replay)
        )

    def _states(self) -> dict[str, str]:
        # Without modes: a mode of selective checkpointing counts every operation in a region.
        with _disable_current_modes():
            held = {path: rng.held_state(thing) or "" for path, thing in self.held.items()}
            return rng.default_states() | held


class Meter(Protocol):
    """Counts live bytes while it is entered."""

    def __enter__(self) -> object: ...

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> Any: ...

    @property
    def live_bytes(self) -> int:
        """What is live now."""
        ...

    @property
    def peak_bytes(self) -> int:
        """What was live at the highest moment."""
        ...


@dataclass(slots=True)
class MemoryWatch:
    """Measures what a step holds: by a meter on the CPU, if there is one; by GPUs' allocators.

    Of several GPUs it gives sums, of the peaks too, which need not be of one moment.
    """

    devices: tuple[torch.device, ...]
    meter: Meter | None = None
    peak_bytes: int | None = None
    retained_bytes: int | None = None
    _base_bytes: int = 0

    @property
    def is_on_gpu(self) -> bool:
        """Whether the step runs on GPUs."""
        return self.devices[0].type == "cuda"

    def around(self) -> AbstractContextManager[object]:
        """Give the context to run the step in."""
        if self.is_on_gpu:
            self._synchronize()
            for device in self.devices:
                torch.cuda.reset_peak_memory_stats(device)
            self._base_bytes = self._allocated_bytes()
        elif self.meter is not None:
            return self.meter
        return nullcontext()

    def before_backward(self) -> None:
        """Take what is held between forward and backward; the last time counts."""
        if self.is_on_gpu:
            self.retained_bytes = self._allocated_bytes() - self._base_bytes
        elif self.meter is not None:
            self.retained_bytes = self.meter.live_bytes

    def finish(self) -> None:
        """Take the peak, after everything that was launched."""
        if self.is_on_gpu:
            self._synchronize()
            peaks = map(torch.cuda.max_memory_allocated, self.devices)
            self.peak_bytes = sum(peaks) - self._base_bytes
        elif self.meter is not None:
            self.peak_bytes = self.meter.peak_bytes

    def _synchronize(self) -> None:
        for device in self.devices:
            torch.cuda.synchronize(device)

    def _allocated_bytes(self) -> int:
        return sum(map(torch.cuda.memory_allocated, self.devices))
