"""Parameters of a profile's blocks as ``fully_shard`` divides them. Reads shapes only."""

from collections import Counter
from collections.abc import Mapping

import torch
from torch import nn

from haversack.profile import ProfileParameter


def divided(
    model: nn.Module, blocks: Mapping[str, nn.Module]
) -> dict[str, tuple[ProfileParameter, ...]]:
    """Describe the parameters of each block, and those of none as of what runs before the first.

    A unit whose parameters cannot be divided has none: those that another one has too, and numbers
    without a dimension.
    """
    units: dict[str, list[torch.Tensor]] = {
        name: list(block.parameters()) for name, block in blocks.items()
    }
    units[f"(before {next(iter(blocks))})"] = _outside(model, blocks)
    counts = Counter(id(each) for unit in units.values() for each in unit)
    return {
        name: tuple(map(_described, unit))
        if all(each.dim() and counts[id(each)] == 1 for each in unit)
        else ()
        for name, unit in units.items()
    }


def _outside(model: nn.Module, blocks: Mapping[str, nn.Module]) -> list[torch.Tensor]:
    """List the parameters that have a place in no block."""
    prefixes = tuple(f"{name}." for name in blocks)
    every = model.named_parameters(remove_duplicate=False)
    found = {id(each): each for path, each in every if not path.startswith(prefixes)}
    return list(found.values())


def _described(parameter: torch.Tensor) -> ProfileParameter:
    size_bytes, rows = parameter.numel() * parameter.element_size(), parameter.shape[0]
    return ProfileParameter(
        rows=rows,
        row_bytes=size_bytes // rows if rows else 0,
        frozen=not parameter.requires_grad,
    )
