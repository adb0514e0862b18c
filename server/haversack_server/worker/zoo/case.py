"""What small cases share: a linear layer and one function of it as a region, and their register.

A case is a factory under a name such as ``rng-numpy-mask``. What it is expected to show is not
said here but in ``haversack_server.verify.cases``.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload

BATCH, WIDTH = 3, 6
Factory = Callable[..., Workload]
Region = Callable[..., Any]
CASES: dict[str, Factory] = {}


class Regions(nn.Module):
    """Runs one function of itself and its input as a region."""

    def __init__(self, region: Region, **settings: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.region = region
        self.settings: dict[str, Any] = {"use_reentrant": False, **settings}

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        """Take tensors that are plain attributes along to a device, as the same objects."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for value in vars(self).values():
            if isinstance(value, torch.Tensor) and value.layout is torch.strided:
                value.data = fn(value.data)
        return self

    def forward(self, x: torch.Tensor) -> Any:
        """Run the region on ``x`` of shape (BATCH, WIDTH)."""
        return checkpoint(self.region, self, x, **self.settings)


def points() -> torch.Tensor:
    """Draw an input of shape (BATCH, WIDTH) that asks for a gradient."""
    return torch.randn(BATCH, WIDTH, requires_grad=True)


def workload(model: nn.Module, **others: Any) -> Workload:
    """Build the workload of a model that takes one input."""
    return Workload(model, (points(),), **others)


def case(factory: Factory) -> Factory:
    """Register a factory under its own name."""
    CASES[factory.__name__.replace("_", "-")] = factory
    return factory


def region(
    *,
    parts: Callable[[], Mapping[str, Any]] = dict,
    around: type[Regions] = Regions,
    after: Callable[[Any], object] | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    **settings: Any,
) -> Callable[[Region], Region]:
    """Register the case of a region, a function of the module and its input.

    ``parts`` makes the module's attributes, ``around`` is its class; ``after`` gets the module
    between forward and backward; ``settings`` are those of ``checkpoint``.
    """

    def register(function: Region) -> Region:
        def factory() -> Workload:
            model = around(function, **settings)
            for name, part in parts().items():
                setattr(model, name, part)
            callback = functools.partial(after, model) if after else None
            return workload(model, loss=loss, between_forward_and_backward=callback)

        factory.__name__, factory.__doc__ = function.__name__, function.__doc__
        case(factory)
        return function

    return register
