"""A model under ``fully_shard`` for a while, as rank 0 of a world that is not there.

The process group is PyTorch's fake one: collectives move nothing, and every buffer is really made.
Units are the blocks, and the root around them. The model is put back afterwards. Reads no memory.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from haversack.errors import InvalidRequestError
from haversack.fsdp2 import fsdp2_ranks
from haversack.parallelism import Parallelism

_HOOKS = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
)


def own_part(value: Any) -> Any:
    """Give a rank's shard of a sharded tensor, everything else as it is; nothing is gathered."""
    # By its method: the class of sharded tensors takes seconds to load.
    return value.to_local() if hasattr(value, "to_local") else value


@contextmanager
def sharded(
    model: nn.Module,
    blocks: Mapping[str, nn.Module],
    parallelism: Parallelism,
    mode: FakeTensorMode,
) -> Iterator[None]:
    """Shard a fake model until the end of the ``with``; each of the blocks is a unit of its own.

    ``reshard_after_forward`` is that of the blocks; the root's is False, or what PyTorch chooses.
    Raises ``InvalidRequestError`` where the process is in a group of ranks already.
    """
    if dist.is_initialized():
        raise InvalidRequestError(
            "this process is one of several ranks already; ask before init_process_group",
            field="parallelism",
        )
    from torch.distributed.device_mesh import init_device_mesh

    before = [_Snapshot(module) for module in model.modules()]
    world = fsdp2_ranks(parallelism)
    with absent_ranks(world):
        try:
            mesh = init_device_mesh("cpu", (world,))
            with mode:
                _shard(model, blocks, parallelism, mesh)
            yield
        finally:
            for each in before:
                each.put_back()


@contextmanager
def absent_ranks(size: int, rank: int = 0) -> Iterator[None]:
    """Be one of ``size`` ranks of which no other is there, until the end of the ``with``."""
    # Registers the group, and what collectives give under fake tensors.
    from torch.testing._internal.distributed.fake_pg import FakeStore

    hook = sys.excepthook
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()
        # The group's writes a rank before every line of a traceback, and outlives it.
        sys.excepthook = hook


def _shard(
    model: nn.Module, blocks: Mapping[str, nn.Module], parallelism: Parallelism, mesh: Any
) -> None:
    from torch.distributed.fsdp import fully_shard

    reshard = parallelism.reshard_after_forward is not False
    units: list[Any] = [
        block for block in blocks.values() if next(block.parameters(), None) is not None
    ]
    for unit in units:
        fully_shard(unit, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=None if reshard else False)
    depth = parallelism.prefetch_units or 0
    for place, unit in enumerate(units) if depth else ():
        unit.set_modules_to_forward_prefetch(units[place + 1 : place + 1 + depth])
        unit.set_modules_to_backward_prefetch(units[max(0, place - depth) : place][::-1])


class _Snapshot:
    """The class of a module and its hooks, both of which ``fully_shard`` changes."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._class = module.__class__
        self._hooks = {name: module.__dict__[name].copy() for name in _HOOKS}

    def put_back(self) -> None:
        from torch.distributed import _composable_state

        self._module.__class__ = self._class
        for name, hooks in self._hooks.items():
            table = self._module.__dict__[name]
            table.clear()
            table.update(hooks)
        # PyTorch has no function that takes fully_shard back; this is where it looks for it.
        known: Any = _composable_state._module_state_mapping
        known.pop(self._module, None)
