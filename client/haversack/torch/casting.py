"""A step in the numbers that FSDP2 computes with, in one process that shards nothing.

Under ``MixedPrecisionPolicy(param_dtype=...)`` units are gathered in another type than they are
stored in, and what they are given is cast to it before they run. Here parameters are fakes of that
type, and the same arguments are cast. Buffers stay as they are, as they do there.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from haversack import checks, spelling
from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.plan import Plan
from haversack.training import NumberType, Precision

_MIXED_NAME = "fp32-bf16-compute"
_OWN = "a profile's step computes in the types of the model's own code"
_REDUCED: dict[NumberType, torch.dtype | None] = {
    NumberType.UNSPECIFIED: None,
    NumberType.FP32: torch.float32,
    NumberType.BF16: torch.bfloat16,
    NumberType.FP16: torch.float16,
}


def precision_of(given: object) -> Precision:
    """Take a precision, or its name as the command line spells it, such as "fp32-bf16-compute"."""
    if isinstance(given, Precision):
        return given
    known = {"", *spelling.names_of(Precision)}
    if not isinstance(given, str) or given.strip().lower().replace("_", "-") not in known:
        raise InvalidRequestError(
            f"{checks.shortly(given)} is no precision; give {_MIXED_NAME!r} for FSDP2's mixed one, "
            f"or leave it out: {_OWN}",
            field="precision",
        )
    return spelling.named(Precision, given, "precision") if given else Precision.UNSPECIFIED


def computed_in(
    model: nn.Module, precision: Precision, device: str | None = None
) -> torch.dtype | None:
    """Give the type that fp32 parameters are computed with in; None where it is their own.

    Raises NotSupportedError for other precisions than FP32_BF16_COMPUTE, for parameters that are
    not stored in fp32, and for a step that is run for real on a ``device``.
    """
    if precision is Precision.UNSPECIFIED:
        return None
    if precision is not Precision.FP32_BF16_COMPUTE:
        raise NotSupportedError(
            f"precision {precision.name}: {_OWN}; leave it out, and build the model in that type "
            f"or cast in its code, or give {_MIXED_NAME!r} for FSDP2's mixed precision"
        )
    if device is not None:
        raise NotSupportedError(
            f"precision {precision.name}: FSDP2's mixed precision is profiled under fake tensors; "
            "leave the device out"
        )
    for name, parameter in model.named_parameters():
        if parameter.dtype is not torch.float32:
            raise NotSupportedError(
                f"{name} is stored as {str(parameter.dtype).removeprefix('torch.')}; FSDP2's mixed "
                "precision is planned for fp32 parameters; keep the model in fp32, or profile it "
                "as it is"
            )
    return torch.bfloat16


def types_of(model: nn.Module, plan: Plan) -> tuple[torch.dtype | None, torch.dtype | None]:
    """Give the types of a plan's ``MixedPrecisionPolicy``: of parameters and of reductions."""
    return computed_in(model, plan.precision), _REDUCED[plan.reduce_type]


@contextmanager
def casting(units: Iterable[nn.Module], to: torch.dtype | None) -> Iterator[None]:
    """Cast what units are given, until the end of the ``with``; None casts nothing."""
    if to is None:
        yield
        return

    def cast(leaf: torch.Tensor) -> torch.Tensor:
        return leaf.to(to) if leaf.is_floating_point() else leaf

    def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
        return tree_map_only(torch.Tensor, cast, (args, kwargs))

    with ExitStack() as stack:
        for unit in units:
            hook = unit.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
            stack.callback(hook.remove)
        yield
