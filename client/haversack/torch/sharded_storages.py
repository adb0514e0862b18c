"""Storages of a step of a sharded model: ``fully_shard`` empties and fills some outside of any
operation, so that their sizes are read again and again.
"""

from collections.abc import Callable
from typing import Any

import torch

from haversack.torch.storages import Made, Record, Storages

_EMPTY = torch.ops.aten.empty.memory_format


class ShardedStorages(Storages):  # type: ignore[no-untyped-call]
    """While it is entered, writes the record of a rank: of sharded tensors its own parts."""

    def __init__(self, record: Record, heard: Callable[[Any, Any, Any, Any], None]) -> None:
        super().__init__(record, heard)
        self._resizable: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # By its method: the class of sharded tensors takes seconds to load. What is done with
        # one comes here once more, with the rank's own parts.
        if any(hasattr(each, "to_local") for each in types):
            return NotImplemented
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if func is _EMPTY:  # so are all made that are gathered into
            self._resizable.add(id(result.untyped_storage()))
        self._read_sizes()
        return result

    def _read_sizes(self) -> None:
        self._resizable &= self._record.known.keys()
        changed: list[tuple[int, Made]] = []
        for key in self._resizable:
            held, made = self._record.known[key]
            storage: torch.UntypedStorage | None = held()
            if storage is not None and storage.nbytes() != made.size_bytes:
                changed.append((storage.nbytes() - made.size_bytes, made))
        # In which order is not known: what grows counts first.
        for delta_bytes, made in sorted(changed, key=lambda each: -each[0]):
            self._record.add(made, delta_bytes)
            made.size_bytes += delta_bytes
