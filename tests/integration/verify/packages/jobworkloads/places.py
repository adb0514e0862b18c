"""Regions whose first difference lies behind a gradient, numpy's writing, or another operation."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from haversack.torch import Workload

WIDTH = 6


class Region(nn.Module):
    """Runs a function of itself as a region; ``calls`` is there for it to count."""

    def __init__(self, body: Callable[[Any, torch.Tensor], torch.Tensor], **settings: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.other = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.calls = 0
        self.body = body
        self.settings = settings

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = checkpoint(self.body, self, x, use_reentrant=False, **self.settings)
        return found

    def force(self, x: torch.Tensor) -> torch.Tensor:
        energy = self.linear(x).sin().sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return force


def _workload(model: nn.Module) -> Workload:
    return Workload(model, (torch.randn(3, WIDTH, requires_grad=True),))


def counter_behind_a_force() -> Workload:
    def body(model: Region, x: torch.Tensor) -> torch.Tensor:
        force = model.force(x)
        model.calls += 1
        found: torch.Tensor = (force * model.calls).sin()
        return found

    return _workload(Region(body))


def dropout_behind_a_force() -> Workload:
    def body(model: Region, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = functional.dropout(model.force(x), 0.5).sin()
        return found

    return _workload(Region(body))


def norm_behind_a_force() -> Workload:
    def body(model: Region, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model.norm(model.force(x)).sin()
        return found

    return _workload(Region(body))


def region_behind_a_force() -> Workload:
    def inner(model: Region, force: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = model.other(force).sin()
        return found

    def body(model: Region, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = checkpoint(inner, model, model.force(x), use_reentrant=False)
        return found.sin()

    return _workload(Region(body))


def memory_that_numpy_fills() -> Workload:
    def body(model: Region, x: torch.Tensor) -> torch.Tensor:
        noise = torch.zeros(WIDTH)
        noise.numpy()[:] = np.random.rand(WIDTH)
        found: torch.Tensor = (model.linear(x) * noise).sin()
        return found

    return _workload(Region(body))


def random_numbers_saved_then_edited() -> Workload:
    def policy(_context: Any, operation: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
        is_saved = operation is torch.ops.aten.rand.default
        return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE

    def body(model: Region, x: torch.Tensor) -> torch.Tensor:
        hidden = model.linear(x).sin()
        mask = torch.rand(WIDTH)
        mask.mul_(2)
        found: torch.Tensor = (hidden * mask).sin()
        return found

    contexts = functools.partial(
        create_selective_checkpoint_contexts, policy, allow_cache_entry_mutation=True
    )
    return _workload(Region(body, context_fn=contexts))


def operation_that_only_a_replay_runs() -> Workload:
    def body(model: Region, x: torch.Tensor) -> torch.Tensor:
        model.calls += 1
        if model.calls > 1:
            x = x * 2.0
        found: torch.Tensor = model.linear(x).sin()
        return found

    return _workload(Region(body))


def layers_that_swap() -> Workload:
    def body(model: Region, x: torch.Tensor) -> torch.Tensor:
        model.calls += 1
        first, second = (model.linear, model.other)[:: 1 if model.calls % 2 else -1]
        swapped: torch.Tensor = second(first(x).sin()).sin()
        return swapped

    return _workload(Region(body))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        found: torch.Tensor = (self.linear(x) * self.calls).sin()
        return found


class Deep(nn.Module):
    """Many regions that count; the first differs first, and its replay comes last."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Counting() for _ in range(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def many_layers_that_count() -> Workload:
    return _workload(Deep())
