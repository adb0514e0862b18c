"""Weights of a block under ``fully_shard``, made whole where no hook of PyTorch's does it.

PyTorch gathers a unit when its forward is called, and when backward comes to what it returned. When
a segment runs again, backward has come to its last block alone. Knows no segments.
"""

import sys
from collections.abc import Iterable

import torch
from torch import nn

from haversack.errors import NotSupportedError


def gather(around: Iterable[nn.Module]) -> None:
    """Gather the unit that a block's own weights are in; ``around`` is the block, then outwards.

    Nothing where they are whole already, and nothing without ``fully_shard``. The unit stays whole
    until its backward is over, when PyTorch reduces its gradients and takes it apart.
    """
    unit = next((module for module in around if is_unit(module)), None)
    if unit is not None:
        with torch.no_grad():
            unit.unshard()  # type: ignore[operator]


def is_unit(module: nn.Module) -> bool:
    """Whether ``fully_shard`` was called for a module."""
    # Not imported: it takes seconds, and who has not loaded it has sharded nothing.
    loaded = sys.modules.get("torch.distributed.fsdp")
    return loaded is not None and isinstance(module, loaded.FSDPModule)


def refuse_flattened(name: str, block: nn.Module, count: int) -> None:
    """Raise ``NotSupportedError`` for a block that had ``count`` parameters and has fewer now.

    ``FullyShardedDataParallel``, which came before ``fully_shard``, marks those that it took, or
    takes them out of the block. So does whoever merges adapters; then the plan is of another model.
    """
    parameters = list(block.parameters())
    marked = any(getattr(each, "_fsdp_flattened", False) for each in parameters)
    if marked:
        raise NotSupportedError(
            f"{name} is in a segment, and FullyShardedDataParallel has its weights there only "
            "while it calls the block itself; take fully_shard, or plan without segments"
        )
    if len(parameters) < count:
        raise NotSupportedError(
            f"{name} is in a segment and has {len(parameters)} parameters, where it had {count} "
            "when the plan was applied; apply it after they are merged or removed, and if "
            "FullyShardedDataParallel took them, take fully_shard or plan without segments"
        )
