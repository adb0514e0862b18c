"""Regions in each other before one whose replay differs in the second step only."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload


class Nested(nn.Module):
    """A replay that is not stopped early makes one call more than one that is."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.steps = 0
        self.in_forward = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        self.in_forward = True
        y = _region(self.scaled, _region(self.outer, x))
        self.in_forward = False
        return y

    def outer(self, x: torch.Tensor) -> torch.Tensor:
        return _region(self.middle, x.sin())

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return _region(torch.sin, x.cos())

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        factor = 2 if self.steps > 1 and not self.in_forward else 1
        scaled: torch.Tensor = self.linear(x) * factor
        return scaled.sin()


def _region(function: object, x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = checkpoint(function, x, use_reentrant=False)
    return found


def differs_in_the_second_step() -> Workload:
    model = Nested()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Workload(model, (torch.randn(3, 6, requires_grad=True),), optimizer=optimizer)
