"""Workloads that do on one rank of several what they do nowhere else."""

import os
import random
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


def steps() -> Workload:
    """Two blocks with an optimizer; what it steps by decides the second loss."""
    made = workload(torch.relu)
    model: Any = made.model
    return Workload(model, made.args, optimizer=torch.optim.AdamW(model.parameters(), lr=0.05))


def stepped() -> Workload:
    """An optimizer that comes with the state of an earlier step."""
    made = steps()
    model: Any = made.model
    optimizer: Any = made.optimizer
    model(*made.args).sum().backward()
    optimizer.step()
    return made


class Drawing(Blocks):
    """On one rank the second block draws from a source that no replay restores."""

    def __init__(self) -> None:
        super().__init__(lambda hidden: hidden)
        self.layers[1] = Scaled()


class Scaled(nn.Module):
    """A block that scales, on one rank by a number of python's own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Any:
        factor = random.random() if on_rank_1() else 1.0
        return self.linear(hidden * factor).tanh()


class Averaging(nn.Module):
    """A block with a buffer that moves by less than a tolerance, each time that it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.mean = nn.Buffer(torch.ones(WIDTH))

    def forward(self, hidden: Tensor) -> Any:
        h = self.linear(hidden)
        self.mean.lerp_(h.detach().mean(0), 1e-6)
        return h.tanh()


def logging() -> Workload:
    """Each rank adds to a file of its own, outside of regions, and has an average inside one."""

    def between(hidden: Tensor) -> Tensor:
        with open(f"log{int(on_rank_1())}.txt", "a") as file:
            file.write("step")
        return hidden

    made = Blocks(between)
    made.layers[1] = Averaging()
    return Workload(made, (torch.randn(3, WIDTH, requires_grad=True),))


class Checked(nn.Linear):
    """A layer that runs with one weight only."""

    def forward(self, input: Tensor) -> Tensor:
        if not bool((self.weight == 1).all()):
            raise ValueError("the weights are not those of the file")
        return super().forward(input)


def raising_unless_ones() -> Workload:
    return Workload(Checked(WIDTH, WIDTH), (torch.randn(3, WIDTH),), regions=("",))


class Counting(nn.Module):
    """A block that scales by how often it ran."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.calls = 0

    def forward(self, hidden: Tensor) -> Any:
        self.calls += 1
        return self.linear(hidden * float(self.calls)).tanh()


class Once(Blocks):
    """Raises in a second forward of one process, as whole steps that are measured have it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(lambda hidden: hidden)
        self.error, self.has_run = error, False

    def forward(self, hidden: Tensor) -> Any:
        if self.has_run:
            raise self.error
        self.has_run = True
        return super().forward(hidden)


def once() -> Workload:
    return Workload(Once(ValueError("a second forward")), (torch.randn(3, WIDTH),))


def once_in_memory() -> Workload:
    return Workload(Once(torch.OutOfMemoryError("no room (played)")), (torch.randn(3, WIDTH),))


def counting() -> Workload:
    made = Blocks(lambda hidden: hidden)
    made.layers[1] = Counting()
    return Workload(made, (torch.randn(3, WIDTH, requires_grad=True),))


def drawing() -> Workload:
    return Workload(Drawing(), (torch.randn(3, WIDTH, requires_grad=True),))


def many_models() -> Workload:
    width = 2 + torch.initial_seed() % 1000
    return Workload(nn.Sequential(nn.Linear(width, 2)), (torch.randn(3, width),))
