"""Workloads for what no built-in case has: near, too large to see whole, one region of several."""

import random
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


class Reader(nn.Module):
    """Reads one tensor twice; what two readers add up for it depends on their order."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, read: torch.Tensor) -> torch.Tensor:
        once: torch.Tensor = self.linear(read).tanh()
        return 30 * read.sum(-1) + once.sum(-1)


class Amplifying(nn.Module):
    """Normalises what reentrant regions read: backwards, last bits of large values are left."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(16, 16)
        self.readers = nn.ModuleList(Reader() for _ in range(3))

    def forward(self, x: torch.Tensor) -> Any:
        read = nn.functional.layer_norm(self.stem(x), (16,))
        said = [checkpoint(each, read, use_reentrant=True) for each in self.readers]
        return sum(each.square().mean() for each in said)


def adds_up_in_another_order(clips: bool = False) -> Workload:
    """Have gradients whose last bits have grown; ``clips`` cuts them, as some trainings do."""
    model = Amplifying()
    if clips:
        untyped: Any = model.stem.weight
        untyped.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    return Workload(model, (torch.randn(8, 16),))


def differs_in_the_second_of_three_regions() -> Workload:
    factors = (lambda: 2.0, random.random, lambda: 3.0)
    return Workload(nn.Sequential(*map(Scaled, factors)), (torch.randn(3, 6),))


def reaches_too_much() -> Workload:
    many = [[str(number)] for number in range(110_000)]  # two things each
    return Workload(Scaled(lambda: float(len(many))), (torch.randn(3, 6),))


def all_of_the_library() -> Workload:
    """A region without a line of the user's."""
    block = nn.Sequential(nn.BatchNorm1d(3), nn.Tanh())
    return Workload(nn.Sequential(nn.Linear(3, 3), block), (torch.randn(4, 3),), regions=("1",))
