"""Counts the collectives that a rank takes part in, by the operations that PyTorch dispatches.

Sees what goes through the dispatcher, which is all that DistributedDataParallel and fully_shard
ask for. Counts calls, not bytes.
"""

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_NAMESPACES = ("c10d", "_c10d_functional")


class Collectives(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, counts collectives by the names of their operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.namespace in _NAMESPACES:
            self.counts[str(func.overloadpacket)] += 1
        return func(*args, **(kwargs or {}))
