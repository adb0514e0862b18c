"""The probe of buffers: which of them replays leave other than they found them.

A small buffer is known by its content, since kernels that write one (batch norm's) need not count
it as written; a large one by its version. Keeps digests, no tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from haversack_server.worker import reach
from haversack_server.worker.leaves import buffers_of
from haversack_server.worker.regions import Call

_SMALL_BYTES = 2**16


@dataclass(slots=True)
class BufferWatch:
    """Looks at the buffers of ``modules``, named by the paths to them, around every replay."""

    modules: Mapping[str, nn.Module]
    _open: list[dict[str, str]] = field(default_factory=list)
    _written: set[str] = field(default_factory=set)

    def entered(self, call: Call, given: Mapping[str, object]) -> None:
        """Look at what a replay begins with."""
        is_replay = call.entries > 1 or call.in_replay
        self._open.append(self._look() if is_replay else {})

    def left(self, call: Call) -> None:
        """Take note of what it has written."""
        before = self._open.pop()
        if before:
            now = self._look()
            self._written.update(name for name, told in now.items() if before.get(name) != told)

    def found(self) -> tuple[str, ...]:
        """Name the buffers that replays have written, as a comparison of buffers does."""
        return tuple(sorted(self._written))

    def _look(self) -> dict[str, str]:
        # Without modes: a mode of selective checkpointing counts every operation in a region.
        with _disable_current_modes():
            return {name: _told(buffer) for name, buffer in buffers_of(self.modules).items()}


def _told(buffer: torch.Tensor) -> str:
    is_large = buffer.numel() * buffer.element_size() > _SMALL_BYTES
    version = 0 if buffer.is_inference() else buffer._version
    about, content = reach.tensor_digest(buffer, skip_content=is_large)
    return f"{about} {content or version}"
