"""What surrounds a forward and decides what it computes: PyTorch's random states, and autocast.

Noted when a forward runs, set when it runs again, and put back afterwards.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Surroundings:
    """States of the default generators, by device; and autocast, by type of device."""

    cpu_state: torch.Tensor | None
    device_states: tuple[tuple[int, torch.Tensor], ...]
    autocasts: tuple[tuple[str, torch.dtype, bool], ...]
    caches: bool

    @classmethod
    def here(cls, preserves_random: bool) -> "Surroundings":
        """Note those of this moment."""
        device = _device_type()
        types = ("cpu",) if device is None else ("cpu", device)
        return cls(
            torch.get_rng_state() if preserves_random else None,
            _device_states(device) if preserves_random else (),
            tuple(
                (each, torch.get_autocast_dtype(each), torch.is_autocast_enabled(each))
                for each in types
            ),
            torch.is_autocast_cache_enabled(),
        )

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Have them once more for the length of the ``with``."""
        with contextlib.ExitStack() as stack:
            if self.cpu_state is not None:
                stack.enter_context(_forked([number for number, _ in self.device_states]))
                torch.set_rng_state(self.cpu_state)
                for number, state in self.device_states:
                    _module().set_rng_state(state, number)
            for device, dtype, is_enabled in self.autocasts:
                stack.enter_context(
                    torch.autocast(device, dtype, enabled=is_enabled, cache_enabled=self.caches)
                )
            yield


def _device_type() -> str | None:
    found = torch.accelerator.current_accelerator()
    return None if found is None or not torch.accelerator.is_available() else found.type


def _module() -> Any:
    return torch.get_device_module(_device_type())


def _device_states(device: str | None) -> tuple[tuple[int, torch.Tensor], ...]:
    if device is None:
        return ()
    number = torch.accelerator.current_device_index()
    return ((number, _module().get_rng_state(number)),)


def _forked(devices: list[int]) -> Any:
    if not devices:
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=devices, device_type=_device_type() or "cuda")
