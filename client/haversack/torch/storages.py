"""Storages of one step, in order: each that an operation makes, in which part, until it is freed.

A part is a block of the chain, or what runs between two. Knows sizes and order only; figures are
read off the record afterwards. Parameters, buffers and inputs were there before and are no part of
it, nor is what a kernel takes inside itself.
"""

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from haversack.torch.kernels import called
from haversack.torch.known import answer, learn
from haversack.torch.leaves import leaves_of

_DEVICE = torch.ops.prim.device.default


@dataclass(slots=True)
class Made:
    """A storage: its size, the part and the pass that made it, and when it is freed.

    ``maker`` is the operation by its occurrence in the block; ``takers`` are blocks that were given
    it, by part and by place among their arguments. ``freed_in_backward`` is None if it outlives
    the step.
    """

    size_bytes: int
    part: int
    in_backward: bool
    freed_in_backward: bool | None = None
    maker: tuple[str, int] | None = None
    takers: list[tuple[int, int]] = field(default_factory=list)

    @property
    def outlives(self) -> bool:
        """Whether it is there at the end of the step."""
        return self.freed_in_backward is None

    @property
    def is_kept(self) -> bool:
        """Whether it is made in forward, for a backward, and is nobody's result."""
        return not self.in_backward and self.freed_in_backward is True


@dataclass(slots=True)
class Event:
    """A storage is made (or grows) or is freed, while a part runs.

    ``in_model`` is false from the model's return until the gradient of what it returned is there.
    """

    part: int
    in_backward: bool
    made: Made
    delta_bytes: int
    in_model: bool = True


@dataclass(slots=True)
class Record:
    """Where the step is, and what happened so far."""

    part: int = 0
    in_backward: bool = False
    in_model: bool = True
    events: list[Event] = field(default_factory=list)
    known: dict[int, tuple[weakref.ref[Any], Made]] = field(default_factory=dict)

    def made_of(self, tensor: Any) -> Made | None:
        """Find the storage of a tensor, if it was made in this step."""
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
            return None
        found = self.known.get(id(tensor.untyped_storage()))
        return found[1] if found is not None else None

    def add(self, made: Made, delta_bytes: int) -> None:
        """Note a change of live bytes at the present place."""
        self.events.append(Event(self.part, self.in_backward, made, delta_bytes, self.in_model))

    def enter(self, part: int) -> None:
        """Go on to a part: forward in rising order, backward in falling order."""
        # A tensor between two blocks ends one and begins the other: the later place holds.
        self.part = min(self.part, part) if self.in_backward else part


class Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, writes the record, and tells ``heard`` of each operation."""

    def __init__(self, record: Record, heard: Callable[[Any, Any, Any, Any], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._record = record
        self._heard = heard

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled here, and the wrapper that sees to it costs as much as what it wraps.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is _DEVICE:  # asked of every fake tensor again and again
            return func(*args, **kwargs)
        known = answer(func, args)
        if known is not None:
            for storage in _storages(known):
                self._follow(storage)
            self._heard(func, args, kwargs, known)
            return known
        given = {id(storage) for storage in _storages((args, kwargs))}
        result = called(func, args, kwargs)
        for storage in _storages(result):
            # A storage that was given is a view or an update, unless the operation resized it.
            if id(storage) not in given or id(storage) in self._record.known:
                self._follow(storage)
        learn(func, args, kwargs, result)
        self._heard(func, args, kwargs, result)
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)
        if key in self._record.known:
            made = self._record.known[key][1]
            if storage.nbytes() != made.size_bytes:
                self._record.add(made, storage.nbytes() - made.size_bytes)
                made.size_bytes = storage.nbytes()
            return
        made = Made(storage.nbytes(), self._record.part, self._record.in_backward)
        self._record.known[key] = weakref.ref(storage, lambda _: self._forget(key)), made
        self._record.add(made, made.size_bytes)

    def _forget(self, key: int) -> None:
        _, made = self._record.known.pop(key)
        made.freed_in_backward = self._record.in_backward
        self._record.add(made, -made.size_bytes)

    def end(self) -> None:
        """Stop following: what is alive now outlives the step."""
        self._record.known.clear()


def _storages(value: Any) -> Iterator[torch.UntypedStorage]:
    for leaf in leaves_of(value):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided:
            yield leaf.untyped_storage()
