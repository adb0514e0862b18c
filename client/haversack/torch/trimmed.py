"""Recomputations that leave out what no backward needs.

PyTorch's selective checkpoint makes again all that it does not save, also what only went into
results that are saved. Here the operations that are left out are not run: a stand-in takes the
place of their results, without memory or values. Whatever but a view reads one raises, in the
recomputation or in the backward, so a policy that left out too much cannot give wrong gradients.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from haversack.errors import NotSupportedError
from haversack.torch.leaves import leaves_of
from haversack.torch.occurrences import Occurrence, next_of
from haversack.torch.replay import ContextFn
from haversack.torch.roofline import is_view
from haversack.torch.stubs import Layout

_CHECKPOINT: Any = checkpoint  # what is used of it has no types
_DETACH = torch.ops.aten.detach.default


class LeftOut(torch.Tensor):
    """Stands for a result that was not made again: its layout, and no memory."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, layout: Layout) -> "LeftOut":
        """Make one of a layout."""
        make: Any = torch.Tensor._make_wrapper_subclass
        made: LeftOut = make(
            cls, layout.shape, strides=layout.stride, dtype=layout.dtype, device=layout.device
        )
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # the stub leaves out the operation
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Refuse all that reaches it outside of a recomputation."""
        raise NotSupportedError(_reads(func, "the backward"))


@dataclass(slots=True)
class _Kept:
    """What one forward leaves for its recomputation; ``counts`` are of its operations."""

    saved: dict[Occurrence, Any] = field(default_factory=dict)
    layouts: dict[Occurrence, Any] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


def trimmed_contexts(
    saved: Collection[Occurrence],
    left_out: Collection[Occurrence],
    check: Callable[[Any, Any, Any], None],
) -> ContextFn:
    """Make a ``context_fn`` that saves some results and leaves out others; the rest is made again.

    ``check`` is called with each operation whose result is saved, its args and kwargs.
    """

    def context_fn() -> tuple[Any, Any]:
        kept = _Kept()
        forward: Any = _Forward(kept, saved, left_out, check)
        recomputation: Any = _Recomputation(kept)
        return forward, recomputation

    return context_fn


class _Forward(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Saves results, and the layouts of those to be left out and of all views."""

    def __init__(
        self,
        kept: _Kept,
        saved: Collection[Occurrence],
        left_out: Collection[Occurrence],
        check: Callable[[Any, Any, Any], None],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kept, self._saved, self._left_out = kept, saved, left_out
        self._check = check

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _CHECKPOINT.SAC_IGNORED_OPS:
            return result
        occurrence = next_of(self._kept.counts, func)
        if occurrence in self._saved:
            self._check(func, args, kwargs or {})
            self._kept.saved[occurrence] = tree_map(_held, result)
        elif occurrence in self._left_out or is_view(func):
            self._kept.layouts[occurrence] = tree_map(_layout, result)
        return result


class _Recomputation(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives back what was saved, stands in for what is left out, and runs the rest."""

    def __init__(self, kept: _Kept) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kept = kept
        self._counts: Counter[str] = Counter()

    def __enter__(self) -> Any:
        self._counts.clear()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        missing = [leaf for leaf in leaves_of((args, kwargs)) if isinstance(leaf, LeftOut)]
        if func in _CHECKPOINT.SAC_IGNORED_OPS:
            return self._ignored(func, args, kwargs, missing)
        occurrence = next_of(self._counts, func)
        self._check(occurrence)
        if occurrence in self._kept.saved:
            return tree_map(_released, self._take(occurrence))
        is_passed = is_view(func) and bool(missing)
        if occurrence in self._kept.layouts and (is_passed or not is_view(func)):
            return tree_map(_stand_in, self._kept.layouts[occurrence])
        if missing:
            raise NotSupportedError(_reads(func, "the recomputation"))
        return func(*args, **kwargs)

    @staticmethod
    def _ignored(func: Any, args: Any, kwargs: Any, missing: list[LeftOut]) -> Any:
        if not missing:
            return func(*args, **kwargs)
        if func is _DETACH:
            return LeftOut(Layout.of(missing[0]))
        raise NotSupportedError(_reads(func, "the recomputation"))

    def _check(self, occurrence: Occurrence) -> None:
        name, place = occurrence
        if place >= self._kept.counts[name]:
            raise NotSupportedError(
                f"{name} runs more often in the recomputation than the {self._kept.counts[name]} "
                "times of the forward; a policy needs the same operations in both"
            )

    def _take(self, occurrence: Occurrence) -> Any:
        held = self._kept.saved[occurrence]
        if held is None:
            raise RuntimeError(
                "a region under a selective policy allows one backward; what it saved is gone"
            )
        self._kept.saved[occurrence] = None
        return held


def _held(leaf: Any) -> Any:
    # Detached in PyTorch's way: without a cycle, and with the count of writes that it looks at.
    return _CHECKPOINT._VersionWrapper(_CHECKPOINT._detach_helper(leaf))


def _released(held: Any) -> Any:
    return held.get_val(False)


def _layout(leaf: Any) -> Any:
    return Layout.of(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _stand_in(leaf: Any) -> Any:
    return LeftOut(leaf) if isinstance(leaf, Layout) else leaf


def _reads(func: Any, where: str) -> str:
    return (
        f"{func} reads, in {where}, a result that the policy left out; the model does not do what "
        "it did when it was profiled, so profile it anew"
    )
