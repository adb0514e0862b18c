"""The reentrant variant: what only its backward inside a backward gets wrong."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload
from haversack_server.worker.zoo.case import WIDTH, Regions, case, points, region, workload

Tensor = torch.Tensor


@region(use_reentrant=True)
def reentrant_dropout(model: Any, x: Tensor) -> Any:
    """Dropout, whose mask a replay draws again."""
    return functional.dropout(model.linear(x).sin(), 0.5).sin()


@region(use_reentrant=True, preserve_rng_state=False)
def reentrant_dropout_not_preserved(model: Any, x: Tensor) -> Any:
    """Dropout without preserve_rng_state."""
    return functional.dropout(model.linear(x).sin(), 0.5).sin()


@region(use_reentrant=True, parts=lambda: {"norm": nn.BatchNorm1d(WIDTH)})
def reentrant_batch_norm(model: Any, x: Tensor) -> Any:
    """BatchNorm inside a region."""
    return model.norm(model.linear(x)).sin()


@case
def reentrant_input_without_gradient() -> Workload:
    """An input that asks for no gradient: the region's parameters get none."""

    class Headed(Regions):
        def __init__(self) -> None:
            super().__init__(lambda model, x: model.linear(x).sin(), use_reentrant=True)
            self.head = nn.Linear(WIDTH, 1)

        def forward(self, x: torch.Tensor) -> Any:
            return self.head(super().forward(x))

    return Workload(Headed(), (points().detach(),))


class _SharedKeys(nn.Module):
    """A producer of keys, kept on the module, and a consumer, each a region."""

    def __init__(self, *, use_reentrant: bool) -> None:
        super().__init__()
        self.producer, self.consumer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.use_reentrant = use_reentrant
        self.keys = torch.zeros(0)

    def forward(self, x: torch.Tensor) -> Any:
        h = checkpoint(self.produce, x, use_reentrant=self.use_reentrant)
        return checkpoint(self.consume, h, use_reentrant=self.use_reentrant)

    def produce(self, x: torch.Tensor) -> Any:
        self.keys = self.producer(x)
        return self.keys.sin()

    def consume(self, h: torch.Tensor) -> Any:
        return (self.consumer(h) * self.keys).sin()


@case
def reentrant_shared_keys() -> Workload:
    """Keys of one region that another uses: the producer gets a part of its gradient only."""
    return workload(_SharedKeys(use_reentrant=True))


@case
def hooks_shared_keys() -> Workload:
    """The same without the reentrant variant."""
    return workload(_SharedKeys(use_reentrant=False))


@case
def reentrant_parameter_hook() -> Workload:
    """A hook on a weight of two regions: it is called once for each of them."""
    model: Any = _Twice()
    model.calls = 0

    def count(gradient: Tensor) -> None:
        model.calls += 1

    model.linear.weight.register_hook(count)
    return workload(model)


@case
def reentrant_finished_gradient_hook() -> Workload:
    """A hook for the finished gradient of such a weight, whose list nothing else holds."""
    model = _Twice()
    kept: list[int] = []
    weight: Any = model.linear.weight
    weight.register_post_accumulate_grad_hook(lambda parameter: kept.append(len(kept)))
    return workload(model)


class _Twice(Regions):
    def __init__(self) -> None:
        super().__init__(lambda model, x: model.linear(x).sin(), use_reentrant=True)

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(super().forward(x))


class _Leafed(Regions):
    def forward(self, x: torch.Tensor) -> Any:
        output = super().forward(x)
        self.taken = x
        return output.sum() + torch.autograd.grad(output.sum(), x, create_graph=True)[0].sum()


@region(use_reentrant=True, around=_Leafed)
def reentrant_autograd_grad(model: Any, x: Tensor) -> Any:
    """A gradient through autograd.grad, which the variant refuses."""
    return model.linear(x).sin()


@region(use_reentrant=True)
def reentrant_detached_output(model: Any, x: Tensor) -> Any:
    """An output without a gradient beside one with it."""
    h = model.linear(x)
    return h.sin(), h.detach()


@region(use_reentrant=True)
def reentrant_nested(model: Any, x: Tensor) -> Any:
    """A reentrant region inside a reentrant region."""
    return checkpoint(lambda h: model.linear(h).sin(), x, use_reentrant=True).cos()
