"""A stand-in for a block whose figures are known from another: it gives results of the same layout.

Its backward gives gradients of the layout of its arguments. It keeps nothing and computes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from haversack.torch.storages import Record


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor lies, without its values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Layout":
        """Read it off a tensor."""
        shape, stride = tuple(tensor.shape), tensor.stride()
        return cls(shape, stride, tensor.dtype, tensor.device, tensor.requires_grad)

    def empty(self) -> torch.Tensor:
        """Make a tensor that lies so, of no values in particular."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)


@dataclass(frozen=True, slots=True)
class _Argument:
    """A result that is one of the block's own arguments."""

    place: int


class Stub:
    """What a block returned once, to be returned again by layout."""

    def __init__(self, results: Sequence[Any], spec: TreeSpec) -> None:
        self._results = results
        self._spec = spec

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return new tensors, arguments, or what is no tensor, as the block did."""
        given = tree_leaves((args, kwargs))
        layouts = [each for each in self._results if isinstance(each, Layout)]
        made = iter(_new(layouts, given))
        return tree_unflatten(
            [self._result(each, given, made) for each in self._results], self._spec
        )

    @staticmethod
    def _result(each: Any, given: Sequence[Any], made: Any) -> Any:
        if isinstance(each, Layout):
            return next(made)
        return given[each.place] if isinstance(each, _Argument) else each


def stub_of(record: Record, given: Any, result: Any) -> Stub | None:
    """Learn from a call that has just ended; None where a layout does not say all.

    So it is where a result shares memory with another one, or with what was there before.
    """
    arguments = {id(leaf): place for place, leaf in enumerate(tree_leaves(given))}
    leaves, spec = tree_flatten(result)
    seen: set[int] = set()
    results: list[Any] = []
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            results.append(leaf)
        elif id(leaf) in arguments:
            results.append(_Argument(arguments[id(leaf)]))
        elif _is_whole(record, leaf) and id(leaf.untyped_storage()) not in seen:
            seen.add(id(leaf.untyped_storage()))
            results.append(Layout.of(leaf))
        else:
            return None
    return Stub(results, spec)


def _is_whole(record: Record, tensor: torch.Tensor) -> bool:
    """Whether the block made a tensor that is all of its storage."""
    made = record.made_of(tensor)
    if made is None or made.part != record.part or made.in_backward:
        return False
    return tensor.numel() * tensor.element_size() == made.size_bytes


def _new(layouts: Sequence[Layout], given: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    tensors = [each for each in given if isinstance(each, torch.Tensor) and each.requires_grad]
    if any(each.requires_grad for each in layouts) and not tensors:
        tensors = [torch.empty(0, requires_grad=True)]  # stands for the block's parameters
    made: Any = _Empty.apply(layouts, *tensors)  # type: ignore[no-untyped-call]
    return made if isinstance(made, tuple) else (made,)


class _Empty(torch.autograd.Function):
    """New tensors by layout, and gradients by the layout of what it was given."""

    @staticmethod
    def forward(ctx: Any, layouts: Sequence[Layout], *tensors: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.layouts = [Layout.of(each) for each in tensors]
        made = tuple(each.empty() for each in layouts)
        plain = [
            each for each, layout in zip(made, layouts, strict=True) if not layout.requires_grad
        ]
        ctx.mark_non_differentiable(*plain)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, *(each.empty() for each in ctx.layouts)
