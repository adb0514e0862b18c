"""A model whose parameters and buffers are fake for a while: shapes without memory.

Whatever the model's code changes on its modules meanwhile is put back. Tensors that are no
parameters and no buffers are made fake where an operation meets them.
"""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from haversack.torch.known import known_are_real, note_given

_TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


class Fakes:
    """The fakes of some tensors, each made once; they may serve several steps.

    Those of parameters have the type ``computed_in``, or their own.
    """

    def __init__(
        self, mode: FakeTensorMode | None = None, *, computed_in: torch.dtype | None = None
    ) -> None:
        self.mode = mode or FakeTensorMode(allow_non_fake_inputs=True)
        self.computed_in = computed_in
        self._made: dict[int, Any] = {}
        self._real: list[torch.Tensor] = []  # held, so that no other gets its identity

    def of(self, tensor: torch.Tensor) -> Any:
        """Make a tensor fake, without a gradient; what is on meta goes to the CPU.

        On meta PyTorch takes other paths than any device does: attention as products and a softmax.
        """
        if id(tensor) not in self._made:
            self._real.append(tensor)
            casts = self.computed_in if isinstance(tensor, nn.Parameter) else None
            is_as_it_is = not tensor.is_meta and casts in (None, tensor.dtype)
            fake = self.mode.from_tensor(tensor) if is_as_it_is else self._made_of(tensor, casts)
            note_given(fake, tensor)
            self._made[id(tensor)] = fake
        self._made[id(tensor)].grad = None
        return self._made[id(tensor)]

    def _made_of(self, tensor: torch.Tensor, casts: torch.dtype | None) -> Any:
        with self.mode:
            fake = torch.empty_strided(
                tensor.shape,
                tensor.stride(),
                dtype=casts or tensor.dtype,
                device="cpu" if tensor.is_meta else tensor.device,
            )
            if isinstance(tensor, nn.Parameter):
                return nn.Parameter(fake, requires_grad=tensor.requires_grad)
            return fake.requires_grad_(tensor.requires_grad)


@contextlib.contextmanager
def faked(model: nn.Module, fakes: Fakes | None = None) -> Iterator[FakeTensorMode]:
    """Make parameters and buffers fake until the end of the ``with``, ties kept."""
    fakes = fakes or Fakes()
    with left_as_it_was(model):
        for module in model.modules():
            _make_fake(module, fakes)
        with known_are_real():
            yield fakes.mode


@contextlib.contextmanager
def left_as_it_was(model: nn.Module) -> Iterator[None]:
    """Put back at the end what changes meanwhile on modules, and Python's and NumPy's generators.

    Values of parameters and buffers are not among it.
    """
    before = [_Snapshot(module) for module in model.modules()]
    draws = random.getstate(), np.random.get_state(legacy=False)
    try:
        yield
    finally:
        for each in before:
            each.put_back()
        random.setstate(draws[0])
        np.random.set_state(draws[1])


def fake_of(mode: FakeTensorMode, value: Any) -> Any:
    """Make every tensor in a nest of arguments fake."""
    return tree_map_only(torch.Tensor, Fakes(mode).of, value)


class _Snapshot:
    """The attributes of a module, and what its tables have in them."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._attributes = dict(module.__dict__)
        self._tables = {name: module.__dict__[name].copy() for name in _TABLES}

    def put_back(self) -> None:
        self._module.__dict__.clear()
        self._module.__dict__.update(self._attributes)
        for name, content in self._tables.items():
            table = self._module.__dict__[name]
            table.clear()
            table.update(content)


def _make_fake(module: nn.Module, fakes: Fakes) -> None:
    for table in (module._parameters, module._buffers):
        for name, tensor in table.items():
            if tensor is not None:
                table[name] = fakes.of(tensor)
