"""Workloads whose trained tensors, threads or blocks are where one would not look at first.

Where something differs, it is by a setting that holds in the forward alone.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from haversack.torch import Workload

WIDTH = 6
FACTOR = [1.0]


@contextmanager
def only_here() -> Iterator[None]:
    FACTOR[0] = 2.0
    try:
        yield
    finally:
        FACTOR[0] = 1.0


def given() -> Tensor:
    return torch.randn(3, WIDTH)


class Adapting(nn.Module):
    """Adds an adapter for its task in the first forward; the rest is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.adapters = nn.ModuleDict()

    def forward(self, x: Tensor) -> Any:
        if "task" not in self.adapters:
            self.adapters["task"] = nn.Linear(WIDTH, WIDTH)
        with only_here():
            return checkpoint(self.block, x, use_reentrant=False)

    def block(self, x: Tensor) -> Any:
        return self.adapters["task"](self.inner(x) * FACTOR[0]).sin()


def adapter_made_by_the_forward() -> Workload:
    return Workload(Adapting(), (given(),))


def low_rank_in_a_patched_forward() -> Workload:
    """Have the trained matrices in the closure of a forward that was put on a frozen layer."""
    layer: Any = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
    down, up = torch.randn(WIDTH, 2, requires_grad=True), torch.randn(2, WIDTH, requires_grad=True)
    real = layer.forward

    def forward(x: Tensor) -> Any:
        return real(x) + x @ down @ up * FACTOR[0]

    layer.forward = forward

    class Patched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Any:
            with only_here():
                return checkpoint(lambda h: self.layer(h).sin() * FACTOR[0], x, use_reentrant=False)

    return Workload(Patched(), (given(),), optimizer=torch.optim.SGD([down, up]))


class Grouped(nn.Module):
    """Blocks in dictionaries in a list; with ``by_method`` blocks whose forward nobody calls."""

    def __init__(self, by_method: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleDict({"block": nn.Linear(WIDTH, WIDTH)}) for _ in range(2)
        )
        self.by_method = by_method

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            block: Any = layer["block"]  # type: ignore[index]
            x = nn.functional.linear(x, block.weight) if self.by_method else block(x)
        return x


def blocks_in_dictionaries(by_method: bool = False) -> Workload:
    return Workload(Grouped(by_method), (given(),))


def thread_of_the_factory() -> Workload:
    """Have the forward wait for a thread that the factory started."""
    asked: Queue[float] = Queue()
    answered: Queue[float] = Queue()

    def answer() -> None:
        while True:
            answered.put(asked.get() * 2)

    threading.Thread(target=answer, daemon=True).start()

    class Waiting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH)])

        def forward(self, x: Tensor) -> Any:
            asked.put(1.0)
            return self.layers[0](x) * answered.get(timeout=60)

    return Workload(Waiting(), (given(),))


class Stepping:
    """All that a workload asks of an optimizer."""

    def step(self) -> None: ...

    def zero_grad(self) -> None: ...


def optimizer_of_ones_own() -> Workload:
    optimizer: Any = Stepping()
    model = nn.Sequential(nn.ModuleList([nn.Linear(WIDTH, WIDTH)])[0])
    return Workload(model, (given(),), optimizer=optimizer, regions=("0",))
