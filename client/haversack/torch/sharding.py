"""A rank of a world that is not there, and its model under ``fully_shard`` for a while.

The process group is PyTorch's fake one: collectives move nothing, and every buffer is really made.
Units are the blocks, and the root around them. The model is put back afterwards. Reads no memory.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from haversack.errors import InvalidRequestError
from haversack.parallelism import Parallelism
from haversack.spread import Spread, resharding_of, spread_of

Types = tuple[torch.dtype | None, torch.dtype | None]

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
def on_a_rank(
    model: nn.Module,
    blocks: Mapping[str, nn.Module],
    parallelism: Parallelism,
    types: Types = (None, None),
) -> Iterator[None]:
    """Be a rank, with a share of a fake model, until the end of the ``with``.

    Where states are sharded, each of the blocks is a unit of its own. ``types`` are those that
    units are gathered in, and gradients reduced; None for their own. ``reshard_after_forward`` is
    that of the blocks; the root's is False, or what PyTorch chooses. On one rank nothing happens.
    Raises ``InvalidRequestError`` where the process is in a group of ranks already.
    """
    spread = spread_of(parallelism)
    if spread.ranks == 1:
        yield
        return
    if dist.is_initialized():
        raise InvalidRequestError(
            "this process is one of several ranks already; ask before init_process_group",
            field="parallelism",
        )
    before = [_Snapshot(module) for module in model.modules()]
    with absent_ranks(spread.ranks):
        try:
            if spread.shards > 1:
                # In no fake mode: resharding to fewer ranks asks for numbers of a mesh.
                shard(model, blocks.values(), parallelism, types)
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


def _mesh(spread: Spread, device: str) -> Any:
    """Give the ranks as ``fully_shard`` takes them: replicas first, where there are some."""
    from torch.distributed.device_mesh import init_device_mesh

    if spread.replicas == 1:
        return init_device_mesh(device, (spread.shards,))
    names = ("dp_replicate", "dp_shard")
    return init_device_mesh(device, (spread.replicas, spread.shards), mesh_dim_names=names)


def shard(
    model: nn.Module,
    blocks: Iterable[nn.Module],
    parallelism: Parallelism,
    types: Types = (None, None),
    device: str = "cpu",
) -> None:
    """Give a rank of a process group its share of a model, whose ``blocks`` are units of their own.

    Raises whatever ``fully_shard`` raises.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = _mesh(spread_of(parallelism), device)
    policy = MixedPrecisionPolicy(param_dtype=types[0], reduce_dtype=types[1])
    reshard = resharding_of(parallelism)
    units: list[Any] = [block for block in blocks if next(block.parameters(), None) is not None]
    for unit in units:
        fully_shard(unit, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    around = None if reshard else False
    fully_shard(model, mesh=mesh, reshard_after_forward=around, mp_policy=policy)
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
