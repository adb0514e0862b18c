"""A fake model under ``DistributedDataParallel``, as one rank of a world that is not there.

Every bucket is really made, when PyTorch makes it; nothing is sent. Needs a process group, and
reads no memory.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from haversack.parallelism import Parallelism
from haversack.plan import CountedStep
from haversack.spread import keeps_first_buckets

_EMPTY = torch.ops.aten.empty.memory_format


def replicated(model: nn.Module, parallelism: Parallelism) -> Callable[..., Any]:
    """Wrap a fake model, whose first buckets are made here; gives the forward of the whole.

    The model itself is as it was, but for hooks on its fake parameters' gradients.
    """
    replica = DistributedDataParallel(
        model,
        init_sync=False,  # compares values with those of other ranks
        gradient_as_bucket_view=bool(parallelism.gradient_as_bucket_view),
    )
    # Without one PyTorch asks the group for what it has reduced, and this one has nothing.
    replica.register_comm_hook(None, _reduced)
    order: Any = _RealNumbers

    def forward(*args: Any, **kwargs: Any) -> Any:
        with order():
            # The model's own forward begins with this, too.
            replica.reducer._rebuild_buckets()
        return replica(*args, **kwargs)

    return forward


def first_buckets(
    model: nn.Module, parallelism: Parallelism, counted: CountedStep | None
) -> list[torch.Tensor]:
    """Make what the first buckets have, where a plan counts them in later steps; else nothing.

    The fake group's are freed when buckets are made anew, as a CPU's are.
    """
    if counted is None or not keeps_first_buckets(parallelism, counted.device):
        return []
    return [torch.empty_like(each) for each in model.parameters() if each.requires_grad]


def _reduced(
    state: object,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """Give a bucket back as if it had been reduced in place."""
    future = torch.futures.Future[torch.Tensor]()
    future.set_result(bucket.buffer())
    return future


class _RealNumbers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While buckets are made anew: the order of parameters is written into real tensors.

    PyTorch writes and reads it by its address, which a fake tensor does not have.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        is_order = func is _EMPTY and kwargs.get("dtype") is torch.int32
        if is_order or func.namespace == "c10d":
            with _disable_current_modes():
                return func(*args, **kwargs)
        return func(*args, **kwargs)
