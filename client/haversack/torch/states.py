"""The state of the CPU's random generator that a checkpoint keeps for each block it runs again.

No operation makes it, so a tracker of storages does not see it; the CPU's allocator does. Under
fake tensors nothing is drawn and no state can be set: there a tensor of its size stands for it.
"""

import contextlib
import functools
from types import TracebackType
from typing import Any

import torch


@functools.cache
def state_bytes() -> int:
    """Give the size of a state; 5056 bytes with torch 2.13."""
    return torch.default_generator.get_state().numel()


def standing_states() -> tuple[contextlib.AbstractContextManager[Any], "_Standing"]:
    """Make the contexts of one region: a state is there as long as the region may run again."""
    return contextlib.nullcontext(), _Standing()


class _Standing(contextlib.AbstractContextManager[None]):
    """Around a recomputation, at whose length what stood there before is kept as well."""

    def __init__(self) -> None:
        self._states = [_made()]

    def __enter__(self) -> None:
        self._states.append(_made())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._states.pop()


def _made() -> torch.Tensor:
    return torch.empty(state_bytes(), dtype=torch.uint8, device="cpu")
