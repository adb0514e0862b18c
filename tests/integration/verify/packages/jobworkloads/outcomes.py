"""Workloads for values of facets that no built-in case has: near, and too large to see whole."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload


class Scaled(nn.Module):
    """Runs a linear layer, a factor and a sine as a region."""

    def __init__(self, factor: Callable[[], float]) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.factor = factor

    def forward(self, x: torch.Tensor) -> Any:
        return checkpoint(self._region, x, use_reentrant=False)

    def _region(self, x: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = self.linear(x) * self.factor()
        return scaled.sin()


def rounds_otherwise_in_its_replay() -> Workload:
    def factor() -> float:
        return 1 + 2e-7 * (torch._C._current_graph_task_id() >= 0)

    return Workload(Scaled(factor), (torch.randn(3, 6, requires_grad=True),))


def reaches_too_much() -> Workload:
    many = [[str(number)] for number in range(110_000)]  # two things each
    return Workload(Scaled(lambda: float(len(many))), (torch.randn(3, 6),))
