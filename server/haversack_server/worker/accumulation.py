"""Two forwards before their backwards, as ``DistributedDataParallel`` takes them.

It reduces gradients after the first backward that a forward announced, and those of a second one
never. So the last backward alone is announced, as ``torch.distributed.pipelining`` does; there is
no other way than its ``reducer``. ``fully_shard`` reduces after every backward, and needs nothing.
"""

import contextlib
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Accumulation(Protocol):
    """What surrounds the forwards and backwards of one accumulated gradient."""

    def forwards(self) -> AbstractContextManager[object]:
        """Give the context that all forwards run in."""
        ...

    def before_last_backward(self) -> None:
        """Say that the next backward is the last one."""
        ...


class Unreduced:
    """Nothing is to be told: one process, or a model that reduces after every backward."""

    def forwards(self) -> AbstractContextManager[object]:
        """Give a context that does nothing."""
        return contextlib.nullcontext()

    def before_last_backward(self) -> None:
        """Do nothing."""


class ReducedOnce:
    """Has a model of ``DistributedDataParallel`` reduce once, after its last backward."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def forwards(self) -> AbstractContextManager[object]:
        """Give the context in which no forward announces a backward."""
        context: AbstractContextManager[object] = self._model.no_sync()
        return context

    def before_last_backward(self) -> None:
        """Announce the last backward; without unused parameters no output need be looked at."""
        self._model.require_backward_grad_sync = True
        self._model.reducer.prepare_for_backward([])
