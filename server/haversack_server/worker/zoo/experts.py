"""Mixtures of experts: a router that draws or computes otherwise sends tokens elsewhere."""

from typing import Any

import numpy
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload
from haversack_server.worker.zoo.case import BATCH, WIDTH, case, region

EXPERTS = 3
Tensor = torch.Tensor


def _parts() -> dict[str, Any]:
    experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))
    return {"router": nn.Linear(WIDTH, EXPERTS), "experts": experts}


def _dispatched(model: Any, x: Tensor, scores: Tensor) -> Tensor:
    """Run each expert on its own rows only."""
    chosen = scores.argmax(-1)
    result = torch.zeros_like(x)
    for place, expert in enumerate(model.experts):
        rows = (chosen == place).nonzero().flatten()
        result = result.index_add(0, rows, expert(x[rows]).sin())
    return result * scores.softmax(-1).amax(-1, keepdim=True)


def _dense(model: Any, x: Tensor, scores: Tensor, most: int = 1) -> Tensor:
    """Run every expert on all rows and weigh what is chosen."""
    kept = torch.zeros_like(scores).scatter(1, scores.topk(most, -1).indices, 1.0)
    outputs = torch.stack([expert(x).sin() for expert in model.experts], -1)
    return (outputs * (scores.softmax(-1) * kept).unsqueeze(1)).sum(-1)


def _noise(scores: Tensor) -> Tensor:
    return 3 * torch.from_numpy(numpy.random.randn(*scores.shape)).to(scores)


@region(parts=_parts)
def experts_dispatched(model: Any, x: Tensor) -> Any:
    """A router without noise that sends each token to one expert."""
    return _dispatched(model, x, model.router(x))


@region(parts=_parts)
def experts_top_two(model: Any, x: Tensor) -> Any:
    """A router without noise that weighs two experts."""
    return _dense(model, x, model.router(x), most=2)


@region(parts=_parts)
def experts_torch_noise(model: Any, x: Tensor) -> Any:
    """A router with noise of torch, which a replay draws again."""
    scores = model.router(x)
    return _dispatched(model, x, scores + torch.randn_like(scores))


@region(parts=_parts)
def experts_numpy_noise(model: Any, x: Tensor) -> Any:
    """A router with noise of numpy that weighs experts: others, in the replay."""
    scores = model.router(x)
    return _dense(model, x, scores + _noise(scores))


@region(parts=_parts)
def experts_numpy_noise_dispatched(model: Any, x: Tensor) -> Any:
    """A router with noise of numpy that sends tokens: other numbers of them, in the replay."""
    scores = model.router(x)
    return _dispatched(model, x, scores + _noise(scores))


@case
def experts_in_turn() -> Workload:
    """An expert for each step: the second step has no gradient of the first one's expert."""
    model = _InTurn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Workload(model, (torch.randn(BATCH, WIDTH),), optimizer=optimizer)


class _InTurn(nn.Module):
    """Changes its scale after the first expert has run, and before that runs again."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.turn = 0
        self.scale = 1.0

    def forward(self, x: Tensor) -> Any:
        self.scale = 1.0
        result = checkpoint(self._run, self.turn, x, use_reentrant=False)
        self.scale = 3.0 - 2.0 * self.turn
        self.turn += 1
        return result

    def _run(self, turn: int, x: Tensor) -> Any:
        return (self.experts[turn](x) * self.scale).sin()
