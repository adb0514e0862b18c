"""Profiles of nets drawn at random, under options drawn at random: no executed peak is above."""

import random
from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are profiled")
pytest.importorskip("transformers", reason="the helpers build models of transformers too")

import torch
from tests.integration.test_profiles import actions, execute, peak_by_hand
from torch import Tensor, nn

from haversack.plan import Plan
from haversack.torch import Workload, apply, profile

ROWS, WIDTH = 32, 16
MOST = 1.1  # of the predicted peak over the executed one


def layer(draw: random.Random) -> nn.Module:
    kinds: tuple[Any, ...] = (
        lambda: nn.Linear(WIDTH, WIDTH),
        lambda: nn.Dropout(0.3),
        lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True)),
        nn.GELU,
        lambda: nn.LayerNorm(WIDTH),
        nn.Tanh,
        lambda: nn.Sequential(nn.Linear(WIDTH, 64), nn.SiLU(), nn.Linear(64, WIDTH)),
        lambda: nn.Softmax(-1),
    )
    made: nn.Module = draw.choice(kinds)()
    return made


class Block(nn.Module):
    """Up to five layers, perhaps with a residual."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.inner = nn.Sequential(*(layer(draw) for _ in range(draw.randint(1, 5))))
        self.residual = draw.random() < 0.5

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.inner(hidden)
        return hidden + result if self.residual else result


class Net(nn.Module):
    """A few blocks, perhaps with operations between them and a skip over all of them."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(Block(draw) for _ in range(draw.randint(2, 4)))
        self.between, self.skips = draw.random() < 0.5, draw.random() < 0.4

    def forward(self, hidden: Tensor) -> Tensor:
        first = hidden = self.stem(hidden)
        for each in self.layers:
            hidden = each(hidden)
            hidden = torch.sigmoid(hidden) * 2 if self.between else hidden
        return hidden * first if self.skips else hidden


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_an_executed_peak_is_never_above_what_the_profile_says(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    workload = Workload(
        Net(draw), args=(torch.randn(ROWS, WIDTH),), loss=lambda output: output.square().mean()
    )
    found, plain = profile(workload), execute(workload)
    for _ in range(4):
        chosen = {each.name: draw.choice(found.tables[each.table].option) for each in found.blocks}
        model: Any = workload.model
        with apply(model, Plan(actions=actions(found, chosen))):
            executed = execute(workload)
        predicted = peak_by_hand(found, chosen)
        assert executed.peak_bytes <= predicted <= MOST * executed.peak_bytes
        assert torch.equal(executed.loss, plain.loss)
        assert all(map(torch.equal, executed.gradients, plain.gradients))
