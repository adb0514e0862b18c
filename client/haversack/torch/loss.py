"""The loss of a workload's step: its own, or what its output offers."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from haversack.errors import InvalidRequestError
from haversack.torch.workload import Workload

_HALF = (torch.float16, torch.bfloat16)


class TakenLoss(NamedTuple):
    """A scalar tensor, and in words where it came from."""

    tensor: torch.Tensor
    said: str


def loss_of(
    workload: Workload,
    output: Any,
    leaves: Callable[[Any], Iterable[Any]] = pytree.tree_leaves,
) -> TakenLoss:
    """Turn an output into a scalar tensor, as ``Workload`` says; ``leaves`` takes it apart."""
    if workload.loss is not None:
        return TakenLoss(scalar_of(workload.loss(output)), "The workload's own loss was taken")
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return TakenLoss(scalar_of(own), "The loss of the output was taken")
    if isinstance(output, torch.Tensor) and _is_floating(output) and output.numel() == 1:
        return TakenLoss(scalar_of(output), "The output is a scalar and was taken as the loss")
    floating = [each for each in leaves(output) if _is_floating(each)]
    if not floating:
        raise InvalidRequestError(
            "the model returns no floating tensor; give the workload a loss", field="loss"
        )
    total = functools.reduce(torch.add, map(_sum, floating))
    said = f"The sum of the output's {len(floating)} floating tensor(s) was the loss"
    return TakenLoss(total, said)


def _sum(tensor: torch.Tensor) -> torch.Tensor:
    # In single precision: a sum in half precision soon is infinite.
    return tensor.sum(dtype=torch.float32 if tensor.dtype in _HALF else None)


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def scalar_of(loss: Any) -> torch.Tensor:
    """Give a loss without dimensions. Raises InvalidRequestError for what is no scalar tensor."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        message = f"the loss is {_word(loss)}, not a scalar tensor"
        raise InvalidRequestError(message, field="loss")
    return loss if loss.dim() == 0 else loss.sum()


def _word(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"
