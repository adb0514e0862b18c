"""A multilayer perceptron, each block of which Verify wraps as a region."""

import torch
from torch import nn

from haversack.torch import Workload


class Mlp(nn.Module):
    """Blocks of linear, GELU and dropout, then a linear head."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1))
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map ``x`` of shape (batch, width) to the mean of the heads' squares."""
        for layer in self.layers:
            x = layer(x)
        loss: torch.Tensor = self.head(x).square().mean()
        return loss


def mlp(width: int = 64, layers: int = 4, batch: int = 32) -> Workload:
    """Build a perceptron of ``layers`` blocks; its input asks for a gradient."""
    return Workload(Mlp(width, layers), (torch.randn(batch, width, requires_grad=True),))
