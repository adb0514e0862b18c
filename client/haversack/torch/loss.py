"""The loss of a workload's step: its own, or what its output offers."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from haversack.errors import InvalidRequestError
from haversack.torch.workload import Workload


def loss_of(workload: Workload, output: Any) -> torch.Tensor:
    """Turn an output into a scalar tensor, as ``Workload`` says."""
    if workload.loss is not None:
        return _scalar(workload.loss(output))
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return _scalar(own)
    floating = [
        each
        for each in pytree.tree_leaves(output)
        if isinstance(each, torch.Tensor) and each.is_floating_point()
    ]
    if not floating:
        raise InvalidRequestError(
            "the model returns no floating tensor; give the workload a loss", field="loss"
        )
    if len(floating) == 1 and floating[0].numel() == 1:
        return _scalar(floating[0])
    return torch.stack([each.sum(dtype=torch.float32) for each in floating]).sum()


def _scalar(loss: Any) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        said = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss)
        raise InvalidRequestError(f"the loss is no scalar tensor but {said}", field="loss")
    return loss if loss.dim() == 0 else loss.sum()
