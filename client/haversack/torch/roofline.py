"""Time of operations on an imagined device: the longer of computing and of moving bytes.

An estimate, for ranking options; no operation is timed. Operations are taken one by one, unfused.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_UNFILLED = frozenset(
    (
        torch.ops.aten.empty.memory_format,
        torch.ops.aten.empty_like.default,
        torch.ops.aten.empty_strided.default,
        torch.ops.aten.new_empty.default,
        torch.ops.aten.new_empty_strided.default,
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """Rates of a device; the default is an A100 at about half of its bf16 peak, and its memory.

    NVIDIA's data sheet of the A100 80GB: 312 TFLOP/s of bf16, 2.0 TB/s.
    """

    flops_per_s: float = 150e12
    bytes_per_s: float = 1.5e12

    def ns(self, operation: Any, args: Any, kwargs: Any, result: Any) -> float:
        """Estimate the time of one operation; a view takes none, nor does memory not yet filled."""
        count = flop_registry.get(getattr(operation, "overloadpacket", None))
        flops = count(*args, **kwargs, out_val=result) if count is not None else 0
        idle = is_view(operation) or operation in _UNFILLED
        moved = 0 if idle else _bytes((args, kwargs, result))
        return 1e9 * max(flops / self.flops_per_s, moved / self.bytes_per_s)


def is_view(operation: Any) -> bool:
    """Whether an operation only gives another view of its input."""
    if operation is torch.ops.aten._unsafe_view.default:
        return True  # a view that autograd does not know as one, so its schema does not say it
    returns = operation._schema.returns
    return bool(returns) and all(
        each.alias_info is not None and not each.alias_info.is_write for each in returns
    )


def whole_ns(time_ns: float) -> int:
    """Round a time up."""
    return math.ceil(time_ns)


def _bytes(value: Any) -> int:
    return sum(
        leaf.numel() * leaf.element_size()
        for leaf in tree_leaves(value)
        if isinstance(leaf, torch.Tensor)
    )
