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

_TABLES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


@contextlib.contextmanager
def faked(model: nn.Module) -> Iterator[FakeTensorMode]:
    """Make parameters and buffers fake until the end of the ``with``, ties kept."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    before = [_Snapshot(module) for module in model.modules()]
    draws = random.getstate(), np.random.get_state(legacy=False)
    try:
        for each in before:
            _make_fake(each.module, mode)
        yield mode
    finally:
        for each in before:
            each.put_back()
        random.setstate(draws[0])
        np.random.set_state(draws[1])


def fake_of(mode: FakeTensorMode, value: Any) -> Any:
    """Make every tensor in a nest of arguments fake."""
    return tree_map_only(torch.Tensor, mode.from_tensor, value)


class _Snapshot:
    """The attributes of a module, and what its tables have in them."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._attributes = dict(module.__dict__)
        self._tables = {name: module.__dict__[name].copy() for name in _TABLES}

    def put_back(self) -> None:
        self.module.__dict__.clear()
        self.module.__dict__.update(self._attributes)
        for name, content in self._tables.items():
            table = self.module.__dict__[name]
            table.clear()
            table.update(content)


def _make_fake(module: nn.Module, mode: FakeTensorMode) -> None:
    for table in (module._parameters, module._buffers):
        for name, tensor in table.items():
            if tensor is not None:
                fake: Any = mode.from_tensor(tensor)
                fake.grad = None
                table[name] = fake
