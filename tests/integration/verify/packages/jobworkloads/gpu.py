"""Workloads of what only a GPU does; the job moves model and arguments there."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload

SLOTS, SUMMANDS = 8, 1 << 20
MIB = 1 << 20


class Atomics(nn.Module):
    """Sums a million numbers into eight slots, in the order in which a GPU comes to them.

    ``scale`` makes of that noise what no tolerance holds.
    """

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(SUMMANDS))
        self.scale = scale
        self.register_buffer("slots", torch.randint(SLOTS, (SUMMANDS,)))

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self._region, x, use_reentrant=False)

    def _region(self, x: Tensor) -> Tensor:
        slots, summands = self.get_buffer("slots"), x * self.weight
        # Twice, by kernels of two files, should one of them get an order some day.
        sums = x.new_zeros(SLOTS).index_add(0, slots, summands)
        sums = sums.scatter_add(0, slots, summands)
        return (sums * self.scale).sin()


def atomics(scale: int) -> Workload:
    return Workload(Atomics(float(scale)), (torch.randn(SUMMANDS, requires_grad=True),))


class Inside(nn.Module):
    """A region that is given nothing of the device that it draws random numbers on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self._region, x.cpu(), x.device, use_reentrant=False)

    def _region(self, x: Tensor, device: torch.device) -> Tensor:
        dropped = nn.functional.dropout(self.linear(x.to(device)), 0.5)
        return dropped * torch.rand(64).to(device)  # the CPU's generator, which is restored


def inside() -> Workload:
    return Workload(Inside(), (torch.randn(8, 64, requires_grad=True),))


class Chain(nn.Module):
    """A region of sines, each of which keeps the megabyte that it was given."""

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self._region, x, use_reentrant=False)

    def _region(self, x: Tensor) -> Tensor:
        for _ in range(8):
            x = x.sin()
        return x


def chain() -> Workload:
    return Workload(Chain(), (torch.randn(MIB // 4, requires_grad=True),))


def too_large() -> Workload:
    def model(x: Tensor) -> Tensor:
        return x.new_empty(1 << 50).sum() + x.sum()

    return Workload(model, (torch.randn(4, requires_grad=True),), regions=())


def out_of_bounds() -> Workload:
    """An index that the device finds wrong, after which its context is of no use."""

    def model(x: Tensor) -> Tensor:
        return x[torch.tensor([1 << 20], device=x.device)].sum()

    return Workload(model, (torch.randn(4, requires_grad=True),), regions=())


class Split(nn.Module):
    """A model on two GPUs, with a region that draws on both and is given tensors of one or both."""

    def __init__(self, given: int) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64, device="cuda:0")
        self.second = nn.Linear(64, 64, device="cuda:1")
        self.given = given

    def forward(self, x: Tensor) -> Any:
        marks = [torch.zeros(1, device=f"cuda:{index}") for index in range(self.given)]
        return checkpoint(self._region, x, *marks, use_reentrant=False)

    def _region(self, x: Tensor, *_: Tensor) -> Tensor:
        hidden = nn.functional.dropout(self.first(x).sin(), 0.5)
        return nn.functional.dropout(self.second(hidden.to("cuda:1")), 0.5)


def split(given: int) -> Workload:
    return Workload(Split(given), (torch.randn(8, 64, device="cuda:0", requires_grad=True),))
