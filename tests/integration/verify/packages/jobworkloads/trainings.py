"""Training as an allowed package has it, with something wrong in it."""

import os
from typing import Any

import torch
from torch import nn

from haversack.torch import TrainingRun, TrainingWorkload, Workload


class Counter:
    """Samples by their number."""

    def __init__(self) -> None:
        self.position = 0

    def __call__(self, rank: int, size: int) -> tuple[torch.Tensor]:
        self.position += 4
        return (torch.arange(12.0).reshape(4, 3).add(self.position).sin().chunk(size)[rank],)

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def plain(model: nn.Module | None = None, **others: Any) -> TrainingWorkload:
    """Without momentum, schedule and random numbers: most kinds of state are not there at all."""
    return TrainingWorkload(model or nn.Linear(3, 2), Counter(), sgd, **others)


def batch_statistics() -> TrainingWorkload:
    """Normalizes by the statistics of each rank's own part of a batch."""
    return plain(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))


def restore_raises() -> TrainingWorkload:
    """The restart knows other names than the run that saved."""

    def restore(run: TrainingRun, state: dict[str, Any]) -> None:
        raise KeyError("weights")

    return plain(save=TrainingRun.state_dict, restore=restore)


def saves(state: dict[Any, Any]) -> TrainingWorkload:
    """Saves that."""
    return plain(save=lambda run: state, restore=TrainingRun.load_state_dict)


def saves_one_name_twice() -> TrainingWorkload:
    """What is nested is named with dots, as another part is."""
    return saves({"model": {"weight": 1}, "model.weight": 2})


def saves_a_number() -> TrainingWorkload:
    """Files have names for their parts."""
    return saves({"model": {"weight": 1}, 7: 2})


def save_disturbs() -> TrainingWorkload:
    """Saving draws a random number."""

    def save(run: TrainingRun) -> dict[str, Any]:
        torch.rand(1)
        return run.state_dict()

    return plain(save=save, restore=TrainingRun.load_state_dict)


def dies_when_read() -> TrainingWorkload:
    """A rank ends while it reads."""

    def restore(run: TrainingRun, state: dict[str, Any]) -> None:
        if run.rank == 1:
            os._exit(7)

    return plain(save=TrainingRun.state_dict, restore=restore)


def no_training() -> Workload:
    """A workload of equivalence jobs."""
    return Workload(nn.Linear(3, 2), (torch.ones(1, 3),))
