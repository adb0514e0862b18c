"""A convolution with BatchNorm: a replay moves the running statistics a second time."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload


class ConvBatchNorm(nn.Module):
    """One region of convolution, BatchNorm and ReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map images of shape (batch, 3, height, width) to the mean of squares."""
        loss: torch.Tensor = checkpoint(self.body, x, use_reentrant=False).square().mean()
        return loss


def conv_batchnorm(channels: int = 8, size: int = 8, batch: int = 4) -> Workload:
    """Build the convolution in training mode, on random square images."""
    images = torch.randn(batch, 3, size, size, requires_grad=True)
    return Workload(ConvBatchNorm(channels), (images,))
