"""Workloads that do on one rank of several what they do nowhere else."""

import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from haversack.torch import Workload

WIDTH = 6


def on_rank_1() -> bool:
    return dist.is_initialized() and dist.get_rank() == 1


class Blocks(nn.Module):
    """Two blocks, and something that happens between them."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.between = between

    def forward(self, hidden: Tensor) -> Any:
        return self.layers[1](self.between(self.layers[0](hidden).tanh()))


def workload(between: Callable[[Tensor], Tensor]) -> Workload:
    return Workload(Blocks(between), (torch.randn(3, WIDTH, requires_grad=True),))


def dies() -> Workload:
    def between(hidden: Tensor) -> Tensor:
        if on_rank_1():
            os._exit(7)
        return hidden

    return workload(between)


def hangs() -> Workload:
    def between(hidden: Tensor) -> Tensor:
        while on_rank_1():
            time.sleep(0.1)
        return hidden

    return workload(between)


def raises() -> Workload:
    def between(hidden: Tensor) -> Tensor:
        if on_rank_1():
            raise ValueError("this rank has no data")
        return hidden

    return workload(between)


class Unused(Blocks):
    """A layer that no forward calls: DistributedDataParallel waits for its gradient for ever."""

    def __init__(self) -> None:
        super().__init__(lambda hidden: hidden)
        self.unused = nn.Linear(WIDTH, WIDTH)


def unused() -> Workload:
    return Workload(Unused(), (torch.randn(3, WIDTH, requires_grad=True),))


def many_models() -> Workload:
    width = 2 + torch.initial_seed() % 1000
    return Workload(nn.Sequential(nn.Linear(width, 2)), (torch.randn(3, width),))
