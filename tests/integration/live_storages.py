"""Live bytes while PyTorch runs, storage by storage: what the tapes are compared with.

A storage counts from the operation that first returns it until nothing refers to it. Gradients of
parameters are another term and are left out: they are known by shape and dtype, so the sizes of a
test are chosen such that no activation has those of a parameter.
"""

import weakref
from collections.abc import Iterable
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Key = tuple[tuple[int, ...], torch.dtype]


def key_of(tensor: torch.Tensor) -> Key:
    """Return shape, without axes of length 1 and in ascending order, and dtype."""
    return tuple(sorted(size for size in tensor.shape if size != 1)), tensor.dtype


class LiveStorages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts ``live_bytes`` and ``peak_bytes`` of storages that are made while it is active.

    With ``states`` it counts those of the CPU's generator too: a checkpoint keeps them, and no
    operation makes them.
    """

    def __init__(
        self,
        known: Iterable[torch.Tensor] = (),
        parameters: Iterable[torch.Tensor] = (),
        *,
        states: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = 0
        self.peak_bytes = 0
        # Held, so that no new storage gets the address of a known one.
        self._known = [*known, *(parameters := list(parameters))]
        self._left_out = {key_of(row) for row in parameters}
        self._seen = {row.untyped_storage()._cdata for row in self._known}

        self._states = mock.patch.object(torch, "get_rng_state", self._counted_state)
        self._counts_states = states

    def __enter__(self) -> "LiveStorages":
        if self._counts_states:
            self._states.start()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        if self._counts_states:
            self._states.stop()

    def _counted_state(self) -> torch.Tensor:
        state = torch.default_generator.get_state()
        self._count(state)
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return state

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf)
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return result

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._seen:
            return
        self._seen.add(key)
        size_bytes = 0 if key_of(tensor) in self._left_out else storage.nbytes()
        self.live_bytes += size_bytes
        weakref.finalize(storage, self._free, key, size_bytes)

    def _free(self, key: int, size_bytes: int) -> None:
        self._seen.discard(key)
        self.live_bytes -= size_bytes
