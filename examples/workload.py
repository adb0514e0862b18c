"""A workload of one's own for Verify: a factory that builds a model and its input.

    cd examples
    haversack verify --workload workload:build --args '{"layers": 2}' --allow workload.

The regions are the blocks that run under activation checkpointing in the second run; the first run
calls them directly.
"""

import torch

from haversack.torch import Workload


class Block(torch.nn.Module):
    """A residual block with dropout, which a recomputation must draw again alike."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(
            torch.nn.LayerNorm(width),
            torch.nn.Linear(width, 4 * width),
            torch.nn.GELU(),
            torch.nn.Dropout(0.1),
            torch.nn.Linear(4 * width, width),
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Map ``hidden`` of shape ``(rows, width)`` to the same shape."""
        return hidden + self.inner(hidden)


def build(layers: int = 2, width: int = 32) -> Workload:
    """Build ``layers`` blocks, and name each of them as a region."""
    blocks = torch.nn.Sequential(*(Block(width) for _ in range(layers)))
    regions = [str(index) for index in range(layers)]
    return Workload(blocks, args=(torch.randn(8, width),), regions=regions)
