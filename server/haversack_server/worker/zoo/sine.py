"""sin(x * w) with dropout, squared: the smallest block that shows what a replay can change.

x is 8 points from -1 to 1 in float64, w is 0.7, dropout takes a quarter. Every variant calls
``torch.utils.checkpoint`` itself, on one function.
"""

import random
from collections.abc import Callable

import torch
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload

POINTS = 8
WEIGHT = 0.7
DROPOUT = 0.25

Region = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class SineBlock(torch.nn.Module):
    """Runs one function of the input and the weight as a region."""

    def __init__(self, region: Region, *, preserve_rng_state: bool = True) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(WEIGHT, dtype=torch.float64))
        self.region = region
        self.preserve_rng_state = preserve_rng_state

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the region on ``x`` of shape (8,)."""
        result: torch.Tensor = checkpoint(
            self.region,
            x,
            self.weight,
            use_reentrant=False,
            preserve_rng_state=self.preserve_rng_state,
        )
        return result


def _points() -> torch.Tensor:
    return torch.linspace(-1, 1, POINTS, dtype=torch.float64, requires_grad=True)


def _sine_dropout_square(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return dropout(torch.sin(x * weight), DROPOUT, training=True) ** 2


def _sine_square(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.sin(x * weight) ** 2


def with_dropout() -> Workload:
    """Build the block with dropout."""
    return Workload(SineBlock(_sine_dropout_square), (_points(),))


def without_dropout() -> Workload:
    """Build the block without dropout."""
    return Workload(SineBlock(_sine_square), (_points(),))


def with_zero_input() -> Workload:
    """Build the block with an input of zeros, whose gradients are zeros that must not be None."""
    zeros = torch.zeros(POINTS, dtype=torch.float64, requires_grad=True)
    return Workload(SineBlock(_sine_dropout_square), (zeros,))


def without_preserved_rng() -> Workload:
    """Build the block so that its replay draws another mask."""
    return Workload(SineBlock(_sine_dropout_square, preserve_rng_state=False), (_points(),))


def with_changed_setting() -> Workload:
    """Build a region that reads a setting, which changes between forward and backward."""
    setting = {"scale": 1.0}

    def region(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return _sine_dropout_square(x * setting["scale"], weight)

    return Workload(
        SineBlock(region),
        (_points(),),
        between_forward_and_backward=lambda: setting.update(scale=2.0),
    )


def with_list_append() -> Workload:
    """Build a region that writes down each time it runs."""
    log: list[int] = []

    def region(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        log.append(len(log))
        return _sine_dropout_square(x, weight)

    return Workload(SineBlock(region), (_points(),))


def with_python_random() -> Workload:
    """Build a region with factors from Python's random; two draws of them are never the same."""

    def region(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        factors = torch.tensor([random.random() for _ in range(POINTS)], dtype=torch.float64)
        return (torch.sin(x * weight) * factors.to(x)) ** 2

    return Workload(SineBlock(region), (_points(),))
