"""Which memory nothing has written yet, so that no digest of it means anything.

Learned from the operations that pass by: ``empty`` and its kin give such memory, and so do a few
kernels whose workspace is theirs alone. What a kernel leaves unwritten inside is not known.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

_EMPTY = ("aten.empty", "aten.new_empty", "aten.resize_")
# A storage that no operation made may be new memory, as that of a copy by ``copy.deepcopy`` is.
_ADOPTS = "aten.set_.source_Storage"
# Results that only the backward of the same kernel reads, in part unwritten, by their place.
_WORKSPACES: Mapping[str, tuple[int, ...]] = {
    "aten.mkldnn_rnn_layer.default": (3,),
    "aten._cudnn_rnn.default": (3,),
    "aten.cudnn_batch_norm.default": (3,),
    "aten._batch_norm_with_update.default": (3,),
    "aten._scaled_dot_product_flash_attention.default": (6, 7),
    "aten._scaled_dot_product_cudnn_attention.default": (6, 7),
    "aten._scaled_dot_product_efficient_attention.default": (2, 3),
    "aten._flash_attention_forward.default": (2, 3),
    "aten._efficient_attention_forward.default": (2, 3),
}


class Unwritten:
    """Follows the storages that operations give and write."""

    def __init__(self) -> None:
        self._storages: set[int] = set()
        self._filled: set[int] = set()

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether nothing has written the memory of a tensor, as far as is known."""
        return storage_of(tensor) in self._storages

    def note(
        self, operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any], made: Any
    ) -> None:
        """Take note of an operation that has run."""
        gives_unwritten = _places_of_unwritten(operation)
        if self._storages:
            self._note_results(args, kwargs, made)
            written = _storages(_written(operation, args, kwargs))
            self._filled |= self._storages & written
            self._storages -= written
        if gives_unwritten is not None:
            made = [made[place] for place in gives_unwritten] if gives_unwritten else made
            self._storages |= _storages(_leaves(made))
        elif _adopts(operation):
            self._storages |= _storages(_leaves(made)) - self._filled

    def _note_results(self, args: Sequence[Any], kwargs: Mapping[str, Any], made: Any) -> None:
        """Take results for written, but for those that were given."""
        # The memory of a storage that was freed may come again, as that of a result.
        known = _storages(_leaves(made)) & self._storages
        if known:  # seldom, and to look through what was given takes long
            self._storages -= known - _storages(_leaves((args, kwargs)))


@cache
def _places_of_unwritten(operation: Any) -> tuple[int, ...] | None:
    """Give the places of results that are unwritten: () for all of them, None for none."""
    name = str(operation)
    return () if name.startswith(_EMPTY) else _WORKSPACES.get(name)


@cache
def _adopts(operation: Any) -> bool:
    return str(operation).startswith(_ADOPTS)


def _leaves(value: Any) -> Iterable[Any]:
    return (value,) if isinstance(value, torch.Tensor) else pytree.tree_leaves(value)


def storage_of(tensor: torch.Tensor) -> int:
    """Identify the memory of a tensor; 0 where it has none of the plain kind."""
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else 0


def _storages(leaves: Iterable[Any]) -> set[int]:
    return {storage_of(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)} - {0}


def _written(operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    schema = operation._schema
    if not schema.is_mutable:
        return []
    written = []
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            written += pytree.tree_leaves(value)
    return written
