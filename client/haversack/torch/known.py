"""Values beside their fakes: whole numbers, constants, and what is computed of them alone.

A fake tensor has no values, so a model that looks at its mask could not be run. Whole numbers
(positions, masks) and what is made of no tensor (a mask of minus infinities) are few and cheap:
their values are computed for real as well, and a model that asks for one gets it. A real tensor
that meets fakes, such as a list of indices, is its own value. Parameters and other numbers that are
given have none.
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
_MOST_FLOATS = 1 << 20  # the mask of 1024 positions that nn.Transformer makes and compares with
_ASKED = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.is_nonzero.default,
    torch.ops.aten.item.default,
}
# The shape of their results is data: places of labels that are not left out, of patches in a mask.
_SHAPED = {torch.ops.aten.nonzero.default, torch.ops.aten.masked_select.default}


class _Value:
    """A real tensor; ``is_given`` if the caller's arguments are in it."""

    __slots__ = ("is_given", "tensor")

    def __init__(self, tensor: torch.Tensor, is_given: bool) -> None:
        self.tensor = tensor
        self.is_given = is_given


_VALUES: Any = WeakIdKeyDictionary()


def note_given(fake: Any, real: torch.Tensor) -> None:
    """Note the value of an argument, if it is of whole numbers."""
    if _is_whole(real) and real.numel() <= _MOST and not real.is_meta:
        with _disable_current_modes():
            _VALUES[fake] = _Value(real.detach().to("cpu", copy=True), is_given=True)


def learn(operation: Any, args: Any, kwargs: Any, result: Any) -> None:
    """Compute the value of a result whose arguments are known."""
    made = [leaf for leaf in leaves_of(result) if isinstance(leaf, FakeTensor)]
    if not made and operation._schema.is_mutable:  # lists are written to without a result
        _forget([leaf for leaf in leaves_of((args, kwargs)) if isinstance(leaf, FakeTensor)])
    if not made or not all(map(_is_small, made)):
        return
    if _draws(operation):
        _forget(made)
        return
    if operation._schema.is_mutable and not isinstance(args[0], FakeTensor):
        return  # what is the model's own is not written to
    given = [leaf for leaf in leaves_of((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    values = {id(leaf): _value_of(leaf) for leaf in given}
    if not all(values.values()):
        _forget(made)
        return
    is_given = any(value.is_given for value in values.values() if value is not None)
    on_cpu = {**kwargs, "device": "cpu"} if kwargs.get("device") is not None else kwargs
    with _disable_current_modes(), torch.no_grad():
        args, kwargs = tree_map_only(
            torch.Tensor, lambda leaf: _tensor_of(values[id(leaf)]), (args, on_cpu)
        )
        real = list(leaves_of(operation(*args, **kwargs)))
    for fake, value in zip(leaves_of(result), real, strict=True):
        if isinstance(fake, FakeTensor):
            _VALUES[fake] = _Value(value, is_given)


def _value_of(tensor: torch.Tensor) -> _Value | None:
    """Give what is known of a tensor; a real one of the model's own is its own value."""
    if isinstance(tensor, FakeTensor):
        found: _Value | None = _VALUES.get(tensor)
        return found
    is_real = _is_small(tensor) and not (tensor.is_meta or tensor.requires_grad)
    return _Value(tensor, is_given=False) if is_real else None


def _tensor_of(value: _Value | None) -> torch.Tensor:
    assert value is not None  # of an argument that is known
    return value.tensor


def _forget(changed: Sequence[Any]) -> None:
    """Know no longer what something unknown was written to, nor other views of it."""
    written = {leaf.untyped_storage()._cdata for leaf in changed if leaf in _VALUES}
    if written:
        for fake in list(_VALUES):
            if fake.untyped_storage()._cdata in written:
                del _VALUES[fake]


def answer(operation: Any, args: Any) -> Any:
    """Give the number or the shape that a model asks known tensors for; None if it asks none."""
    if operation in _SHAPED:
        return _shaped(operation, args)
    if operation not in _ASKED or args[0] not in _VALUES:
        return None
    with _disable_current_modes():
        number = _VALUES[args[0]].tensor.item()
    return bool(number) if operation is torch.ops.aten.is_nonzero.default else number


def _shaped(operation: Any, args: Any) -> Any:
    values = [_value_of(each) for each in args]
    if not isinstance(args[0], FakeTensor) or not all(values):
        return None
    with _disable_current_modes():
        real = operation(*map(_tensor_of, values))
    fake: Any = args[0].fake_mode.from_tensor(real)
    _VALUES[fake] = _Value(real, any(each.is_given for each in values if each is not None))
    return fake


def depends_on_data(operation: Any, args: Any) -> bool:
    """Whether an operation asks for a number that the caller's arguments decide."""
    asks = operation in _ASKED or operation in _SHAPED
    return asks and args[0] in _VALUES and _VALUES[args[0]].is_given


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
    most = _MOST if _is_whole(tensor) else _MOST_FLOATS
    return tensor.layout is torch.strided and tensor.numel() <= most


def _is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def _draws(operation: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in operation.tags
