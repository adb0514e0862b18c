"""The same under FSDP1, ``FullyShardedDataParallel``: its wrapping, and a tracker that suits it.

PyTorch's tracker for FSDP knows ``fully_shard`` only; the general one counts the same storages,
without its hooks on parameters, which are views of the flat parameter here and take none.
"""

from typing import Any

import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.fsdp import (
    BackwardPrefetch,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
)
from torch.distributed.fsdp.wrap import CustomPolicy

from haversack_server.estimate.trace import TraceOrder


def wrap_flat(
    model: nn.Module,
    units: list[nn.Module],
    order: TraceOrder,
    types: tuple[torch.dtype | None, torch.dtype | None],
) -> nn.Module:
    """Wrap the units and the root; ``types`` are those of parameters in use and of reductions."""
    inside = {id(unit) for unit in units}
    parameters, reductions = types
    kept = ShardingStrategy.SHARD_GRAD_OP
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=CustomPolicy(lambda module: id(module) in inside),
        mixed_precision=MixedPrecision(param_dtype=parameters, reduce_dtype=reductions),
        sharding_strategy=ShardingStrategy.FULL_SHARD if order.reshard_after_forward else kept,
        backward_prefetch=_PREFETCHES[order.backward_prefetch],
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )


_PREFETCHES = {
    "pre": BackwardPrefetch.BACKWARD_PRE,
    "post": BackwardPrefetch.BACKWARD_POST,
    "none": None,
}


class FlatTracker(MemTracker):  # type: ignore[no-untyped-call]
    """Counts every storage; leaves the parameters' own hooks out."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.track_external(model, optimizer)

    def track_inputs(self, inputs: tuple[Any, ...]) -> None:
        """Count the tokens of the microbatch."""
        self.track_external(*inputs)

    def _track_module_params_and_buffers(
        self, module: nn.Module, install_grad_hooks: bool = True
    ) -> tuple[int, int]:
        return super()._track_module_params_and_buffers(module, install_grad_hooks=False)
