"""Values of whole numbers beside their fakes: positions, masks, and what is computed of them.

A fake tensor has no values, so a model that looks at its mask could not be run. Whole numbers are
few and cheap: their values are computed for real as well, and a model that asks for one gets it.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from haversack.torch.leaves import leaves_of

_MOST = 1 << 22  # elements; a mask of positions by positions is not computed
_ASKED = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.is_nonzero.default,
    torch.ops.aten.item.default,
}


class _Value:
    """A real tensor; ``is_given`` if the caller's arguments are in it."""

    __slots__ = ("is_given", "tensor")

    def __init__(self, tensor: torch.Tensor, is_given: bool) -> None:
        self.tensor = tensor
        self.is_given = is_given


_VALUES: Any = WeakIdKeyDictionary()


def note_given(fake: Any, real: torch.Tensor) -> None:
    """Note the value of an argument, if it is of whole numbers."""
    if _is_small(real) and not real.is_meta:
        with _disable_current_modes():
            _VALUES[fake] = _Value(real.detach().to("cpu", copy=True), is_given=True)


def learn(operation: Any, args: Any, kwargs: Any, result: Any) -> None:
    """Compute the value of a result whose arguments are known."""
    made = [leaf for leaf in leaves_of(result) if isinstance(leaf, FakeTensor)]
    if not made or not all(map(_is_small, made)) or _draws(operation):
        return
    given = [leaf for leaf in leaves_of((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if not all(leaf in _VALUES for leaf in given):
        _forget(made)
        return
    is_given = any(_VALUES[leaf].is_given for leaf in given)
    on_cpu = {**kwargs, "device": "cpu"} if kwargs.get("device") is not None else kwargs
    with _disable_current_modes(), torch.no_grad():
        args, kwargs = tree_map_only(
            torch.Tensor, lambda leaf: _VALUES[leaf].tensor, (args, on_cpu)
        )
        real = list(leaves_of(operation(*args, **kwargs)))
    for fake, value in zip(leaves_of(result), real, strict=True):
        if isinstance(fake, FakeTensor):
            _VALUES[fake] = _Value(value, is_given)


def _forget(changed: Sequence[Any]) -> None:
    """Know no longer what something unknown was written to, nor other views of it."""
    written = {leaf.untyped_storage()._cdata for leaf in changed if leaf in _VALUES}
    if written:
        for fake in list(_VALUES):
            if fake.untyped_storage()._cdata in written:
                del _VALUES[fake]


def answer(operation: Any, args: Any) -> Any:
    """Give the number that a model asks a known tensor for; None if it asks for none."""
    if operation not in _ASKED or args[0] not in _VALUES:
        return None
    with _disable_current_modes():
        number = _VALUES[args[0]].tensor.item()
    return bool(number) if operation is torch.ops.aten.is_nonzero.default else number


def depends_on_data(operation: Any, args: Any) -> bool:
    """Whether an operation asks for a number that the caller's arguments decide."""
    return operation in _ASKED and args[0] in _VALUES and _VALUES[args[0]].is_given


@contextlib.contextmanager
def known_are_real() -> Iterator[None]:
    """Have transformers take fakes whose values are known for real ones, as the real step would."""
    module: Any = sys.modules.get("transformers.utils.import_utils")
    is_fake = getattr(module, "is_fake_tensor", None)
    if is_fake is None:
        yield
        return
    module.is_fake_tensor = lambda tensor: is_fake(tensor) and tensor not in _VALUES
    try:
        yield
    finally:
        module.is_fake_tensor = is_fake


def _is_small(tensor: torch.Tensor) -> bool:
    is_whole = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    return is_whole and tensor.layout is torch.strided and tensor.numel() <= _MOST


def _draws(operation: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in operation.tags
