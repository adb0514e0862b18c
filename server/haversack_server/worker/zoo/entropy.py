"""A model that no seed repeats, so that no comparison can say anything about checkpointing."""

import os

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload


class EntropyMask(nn.Module):
    """Masks with bytes that the operating system gives."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run the region on ``x`` of shape (batch, width)."""
        result: torch.Tensor = checkpoint(self._masked, x, use_reentrant=False)
        return result

    def _masked(self, x: torch.Tensor) -> torch.Tensor:
        drawn = list(os.urandom(x.numel()))
        mask = torch.tensor(drawn, dtype=x.dtype, device=x.device).view_as(x) / 255
        result: torch.Tensor = self.linear(x).sin() * mask
        return result.square()


def entropy_mask(width: int = 16, batch: int = 4) -> Workload:
    """Build the model on random input."""
    return Workload(EntropyMask(width), (torch.randn(batch, width, requires_grad=True),))
