"""Nets whose tensors skip over blocks: every plan's peak, and the best plan, against trying all.

A tensor that several blocks read counts once, with the block that makes it, until that block's own
backward. The executed peak is that of the whole step, which reads no table.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

pytest.importorskip("torch", reason="models of PyTorch are stepped")

import torch
from torch import Tensor, nn
from torch.nn import functional

from haversack.plan import Plan, PlanConstraints, PlanRequest
from haversack.profile import OptionTable, Profile
from haversack.run import BlockAction, Budget
from haversack.torch import Workload, profile
from haversack.torch.whole_step import whole_step
from haversack_server.plan.answer import plan

WIDTH, BLOCKS, DEPTH = 16, 4, 2
WAYS = ("save", "recompute")


def conv(given: int, made: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(given, made, 3, padding=1), nn.GELU(), nn.Conv2d(made, made, 3, padding=1)
    )


class UNet(nn.Module):
    """Blocks on the way down whose outputs wait for those on the way up."""

    def __init__(self) -> None:
        super().__init__()
        down, up = [conv(3, 8), conv(8, 16)], [conv(32, 16), conv(24, 8)]
        self.blocks = nn.ModuleList([*down, *up])

    def forward(self, image: Tensor) -> Tensor:
        skips = []
        for place in range(DEPTH):
            image = self.blocks[place](image)
            skips.append(image)
            image = functional.max_pool2d(image, 2)
        for place in range(DEPTH, 2 * DEPTH):
            image = functional.interpolate(image, scale_factor=2)
            image = self.blocks[place](torch.cat([skips.pop(), image], 1))
        return image


class Dense(nn.Module):
    """Every block reads what all blocks before it made."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(WIDTH * place, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
            )
            for place in range(1, BLOCKS + 1)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        made = [hidden]
        for block in self.blocks:
            made.append(block(torch.cat(made, -1)))
        return torch.cat(made, -1)


class Reader(nn.Module):
    """Computes of its input, and of another block's output."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.of_memory = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: Tensor, memory: Tensor) -> Tensor:
        result: Tensor = self.narrow(torch.tanh(self.wide(hidden))) + self.of_memory(memory)
        return result


class Decoder(nn.Module):
    """The first block's output is given to all others."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Reader() for _ in range(BLOCKS))

    def forward(self, hidden: Tensor) -> Tensor:
        memory = hidden = self.blocks[0](hidden, hidden)
        for place in range(1, BLOCKS):
            hidden = self.blocks[place](hidden, memory)
        return hidden


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "unet": (UNet, (2, 3, 32, 32)),
    "dense": (Dense, (64, WIDTH)),
    "decoder": (Decoder, (64, WIDTH)),
}


@cache
def profiled(net: str) -> tuple[Workload, Profile]:
    """A workload, and its profile with no option but to save and to recompute."""
    torch.manual_seed(0)
    make, shape = NETS[net]
    model = make()
    workload = Workload(
        model,
        args=(torch.randn(shape),),
        loss=lambda output: output.square().mean(),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    )
    found = profile(workload)
    return workload, replace(found, tables=tuple(map(of_two_ways, found.tables)))


def of_two_ways(table: OptionTable) -> OptionTable:
    kept = [place for place, option in enumerate(table.option) if option in WAYS]
    return OptionTable(
        option=tuple(table.option[place] for place in kept),
        retained_bytes=tuple(table.retained_bytes[place] for place in kept),
        forward_peak_bytes=tuple(table.forward_peak_bytes[place] for place in kept),
        backward_peak_bytes=tuple(table.backward_peak_bytes[place] for place in kept),
        extra_ns=tuple(table.extra_ns[place] for place in kept),
    )


def ask(found: Profile, budget_bytes: int, options: dict[str, str] | None = None) -> Plan:
    """Plan for a budget; with ``options`` there is no other choice."""
    chosen = options or {}
    return plan(
        PlanRequest(
            profile=found,
            budget=Budget(bytes=budget_bytes),
            constraints=PlanConstraints(
                must_save=tuple(name for name, way in chosen.items() if way == "save"),
                must_recompute=tuple(name for name, way in chosen.items() if way == "recompute"),
                without_segments=True,
            ),
            frontier_points=0,
        )
    )


def every_plan(net: str) -> list[tuple[int, int, int]]:
    """Give predicted peak, executed peak and extra time of every way to run the blocks."""
    workload, found = profiled(net)
    names = [f"blocks.{place}" for place in range(BLOCKS)]
    rows = []
    for ways in itertools.product(WAYS, repeat=BLOCKS):
        options: dict[str, str] = dict(zip(names, ways, strict=True))
        answer = ask(found, 2**40, options)
        assert [each.option for each in answer.actions if each.block in options] == list(ways)
        actions = tuple(BlockAction(block=name, option=way) for name, way in options.items())
        executed = max(whole_step(workload, Plan(actions=actions)).peak_bytes)
        assert answer.predicted_peak_bytes is not None
        rows.append((answer.predicted_peak_bytes, executed, answer.extra_ns))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("net", NETS)
def test_every_plan_needs_what_it_predicts_and_the_best_is_found(net: str) -> None:
    rows = every_plan(net)
    assert [predicted for predicted, _, _ in rows] == [executed for _, executed, _ in rows]
    _, found = profiled(net)
    floor_bytes = ask(found, 1).floor_bytes
    assert floor_bytes == min(executed for _, executed, _ in rows)
    for budget_bytes in sorted({executed for _, executed, _ in rows}):
        least_ns = min(extra for _, executed, extra in rows if executed <= budget_bytes)
        assert ask(found, budget_bytes).extra_ns == least_ns
