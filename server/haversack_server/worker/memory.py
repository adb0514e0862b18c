"""Live bytes of a step on the CPU: every storage that an operation makes, until it is freed.

Parameters, buffers, inputs and whatever else was there before the step are not counted, nor what
a kernel takes and gives back inside itself. Reads sizes only; runs no operation of its own.
"""

import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from haversack_server.worker.unrepeatable import unheard

# By its name: to load the class of sharded tensors takes seconds.
_SHARDED = "torch.distributed.tensor"


class LiveStorages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, follows the storages that operations make.

    ``resized`` reads the sizes of all that live at every operation: those that ``fully_shard``
    empties and fills again are resized by none.
    """

    def __init__(self, *, resized: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._resized = resized
        self.live_bytes = 0
        self.peak_bytes = 0
        self._sizes: dict[int, tuple[weakref.ref[Any], int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(each.__module__.startswith(_SHARDED) for each in types):
            return NotImplemented  # what it does to this rank's own part comes here next
        result = func(*args, **(kwargs or {}))
        with unheard():
            self._note((args, kwargs), result)
        return result

    def _note(self, given: Any, result: Any) -> None:
        made = _storages(result)
        unknown = any(id(storage) not in self._sizes for storage in made)
        before = {id(storage) for storage in _storages(given)} if unknown else ()
        for storage in made:
            # A storage that was given is a view or an update, unless the operation resized it.
            if id(storage) in self._sizes or id(storage) not in before:
                self._follow(storage)
        if self._resized:
            self._read_sizes()
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)
        size = storage.nbytes()
        followed, before = self._sizes.get(key, (None, 0))
        if followed is not None and size == before:
            return
        freed = followed or weakref.ref(storage, lambda _: self._forget(key))
        self._sizes[key] = (freed, size)
        self.live_bytes += size - before

    def _read_sizes(self) -> None:
        for key, (held, before) in list(self._sizes.items()):
            storage = held()
            if storage is not None and storage.nbytes() != before:
                self._sizes[key] = (held, storage.nbytes())
                self.live_bytes += storage.nbytes() - before

    def _forget(self, key: int) -> None:
        _, size = self._sizes.pop(key)
        self.live_bytes -= size


def _storages(value: Any) -> list[torch.UntypedStorage]:
    if isinstance(value, FakeTensor):
        return []  # shapes that sharded tensors try out
    if isinstance(value, torch.Tensor):
        return [value.untyped_storage()] if value.layout is torch.strided else []
    if isinstance(value, list | tuple):
        return [storage for each in value for storage in _storages(each)]
    if isinstance(value, dict):
        return [storage for each in value.values() for storage in _storages(each)]
    return []
