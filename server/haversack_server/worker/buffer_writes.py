"""The probe of buffers and parameters: which of them replays leave other than they were.

The content of a large one, and of a trained one, is looked at where its version says that it was
written, so that one that is written to what it held before is none of them. Parameters that are
sharded, now or when the replay began, are left out: their shards come and go. Keeps digests, no
tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from haversack.torch.sharding import own_part
from haversack_server.worker import frozen
from haversack_server.worker.known_tensors import Known, known, spelled
from haversack_server.worker.leaves import buffers_of
from haversack_server.worker.regions import Call

_SHARDED = "sharded"


@dataclass(slots=True)
class BufferWatch:
    """Looks at the buffers of ``modules``, named by the paths to them, around every replay.

    ``trained`` are the parameters that gradients are stored for, and ``stood`` is what all
    parameters were before the step.
    """

    modules: Mapping[str, nn.Module]
    stood: Mapping[str, Known] = field(default_factory=dict)
    trained: Mapping[str, torch.Tensor] = field(default_factory=dict)
    _open: list[dict[str, str]] = field(default_factory=list)
    _written: set[str] = field(default_factory=set)
    _contents: dict[str, Known] = field(default_factory=dict)

    def entered(self, call: Call, given: Mapping[str, object]) -> None:
        """Look at what a replay begins with."""
        self._open.append(self._look() if call.is_replay else {})

    def left(self, call: Call) -> None:
        """Take note of what it has written."""
        before = self._open.pop()
        if before:
            now = self._look()
            others = {name for name, told in now.items() if before.get(name) != told}
            self._written |= {n for n in others if _SHARDED not in (now[n], before.get(n))}

    def found(self) -> tuple[str, ...]:
        """Name what replays have written, as a comparison of buffers does."""
        return tuple(sorted(self._written))

    def _look(self) -> dict[str, str]:
        # Without modes: a mode of selective checkpointing counts every operation in a region.
        with _disable_current_modes():
            looked_at = {**frozen.of(self.modules), **buffers_of(self.modules)}
            trained = {n: self._counted(n, w) for n, w in self.trained.items() if n in self.stood}
            return trained | {name: self._told(name, each) for name, each in looked_at.items()}

    def _told(self, name: str, tensor: torch.Tensor) -> str:
        if own_part(tensor) is not tensor:
            return _SHARDED
        said, is_large = spelled(tensor)
        return self._counted(name, tensor) if is_large else said

    def _counted(self, name: str, tensor: torch.Tensor) -> str:
        if own_part(tensor) is not tensor:
            return _SHARDED
        content = self._contents.get(name) or self.stood.get(name)
        if content is None or not content.still_holds(tensor):
            content = known(tensor)
        self._contents[name] = content
        return content.said
