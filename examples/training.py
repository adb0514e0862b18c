"""Training of one's own for a resume job: what it consists of, so that it can be stopped.

    cd examples
    haversack verify --workload training:build --allow training. --resume 2:4

Ranks train, save to disk and end; others read the files and go on. What they hold and compute is
compared with a run that was not stopped. Take something out of what ``save`` keeps to see it found.
"""

from typing import Any

import torch
from torch import nn

from haversack.torch import TrainingRun, TrainingWorkload

SAMPLES, BATCH, WIDTH = 64, 8, 16


class Shuffled:
    """Samples in an order that each epoch shuffles anew; every rank takes its part of a batch."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(1)
        self.samples = torch.randn(SAMPLES, WIDTH, generator=self.generator)
        self.order = torch.randperm(SAMPLES, generator=self.generator)
        self.position = 0

    def __call__(self, rank: int, size: int) -> tuple[torch.Tensor]:
        """Give this rank's rows of the next global batch, of shape ``(BATCH / size, WIDTH)``."""
        if self.position == SAMPLES:
            self.order = torch.randperm(SAMPLES, generator=self.generator)
            self.position = 0
        chosen = self.order[self.position : self.position + BATCH]
        self.position += BATCH
        return (self.samples[chosen.chunk(size)[rank]],)

    def state_dict(self) -> dict[str, Any]:
        """Give the order of this epoch, the place in it, and what shuffles the next one."""
        return {
            "order": self.order,
            "position": self.position,
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where a run was."""
        self.order, self.position = state["order"], state["position"]
        self.generator.set_state(state["generator"])


def save(run: TrainingRun) -> dict[str, Any]:
    """Keep everything: model, optimizer, scheduler, data and each rank's random states."""
    return run.state_dict()


def restore(run: TrainingRun, state: dict[str, Any]) -> None:
    """Put everything back."""
    run.load_state_dict(state)


def build() -> TrainingWorkload:
    """Build a small autoencoder with AdamW and a learning rate that falls."""
    model = nn.Sequential(nn.Linear(WIDTH, 4), nn.GELU(), nn.Linear(4, WIDTH))
    return TrainingWorkload(
        model,
        Shuffled(),
        optimizer=lambda spread: torch.optim.AdamW(spread.parameters(), lr=0.01),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100),
        loss=lambda output: (output**2).mean(),
        save=save,
        restore=restore,
    )
