"""Plans with segments on several ranks: what they save, and that their certified peak is met.

The certificate follows the storages of a step under ``fully_shard``, weights that are gathered for
blocks that run again among them, and reads no prediction.
"""

from functools import cache
from itertools import chain as chained
from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are sharded")

import torch
from torch import Tensor, nn

from haversack.parallelism import Parallelism, Sharding
from haversack.plan import Plan, PlanConstraints, PlanRequest, Rung
from haversack.profile import Profile
from haversack.run import Budget, Training
from haversack.torch import Workload, certify, profile
from haversack.torch.whole_step import whole_step
from haversack_server.plan.answer import plan
from haversack_server.plan.pieces import backward_of, forward_of, pieces_of
from haversack_server.plan.profiled_actions import actions_of
from haversack_server.plan.profiled_chain import ProfiledChain, chain_of, options_of
from haversack_server.plan.profiled_peaks import peak_of
from haversack_server.plan.profiled_shards import on_one_rank
from haversack_server.plan.profiled_types import recipe_of

APART, WIDTH = 1.02, 32


class Block(nn.Module):
    """Hands on as much as it saves, so that segments are worth their time."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        """Shape (rows, WIDTH) in and out."""
        result: Tensor = hidden + self.down(torch.relu(self.up(hidden)))
        return result


class Net(nn.Module):
    """Blocks in a row, and a head."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(count))
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, hidden: Tensor) -> Tensor:
        """Give the loss."""
        for layer in self.layers:
            hidden = layer(hidden)
        loss: Tensor = self.head(hidden).square().mean()
        return loss


@cache
def profiled(count: int, rows: int) -> tuple[Workload, Profile]:
    """A workload and its profile."""
    torch.manual_seed(0)
    model = Net(count)
    optimizer = torch.optim.AdamW(model.parameters())
    workload = Workload(model, args=(torch.randn(rows, WIDTH),), optimizer=optimizer)
    return workload, profile(workload)


def fsdp2(**settings: Any) -> Parallelism:
    return Parallelism(world_size=4, sharding=Sharding.FSDP2, **settings)


@pytest.mark.parametrize("reshards", [True, False])
def test_segments_lower_the_least_peak_and_it_is_met(reshards: bool) -> None:
    workload, found = profiled(6, 512)

    def ask(budget_bytes: int, **settings: Any) -> Plan:
        return plan(
            PlanRequest(
                profile=found,
                budget=Budget(bytes=budget_bytes),
                parallelism=fsdp2(reshard_after_forward=reshards),
                frontier_points=0,
                constraints=PlanConstraints(**settings),
            )
        )

    answer = ask(ask(2**40).floor_bytes)
    without = ask(2**40, without_segments=True)
    assert answer.rung is Rung.SEGMENTS
    assert answer.floor_bytes < 0.9 * without.floor_bytes
    said = [each for each in answer.assumptions if each.startswith("segments:")]
    # A nest that ran plainly would hold its weights whole until its turn.
    assert any(action.inner_segments for action in answer.actions) is not reshards
    assert bool(said) is reshards
    certificate = certify(workload, answer)
    assert certificate.holds
    assert certificate.findings == ()
    assert answer.predicted_peak_bytes is not None
    seen = certificate.observed_peak_bytes
    assert seen <= answer.predicted_peak_bytes <= APART * seen


def ranked(found: Profile, parallelism: Parallelism) -> ProfiledChain:
    chain = chain_of(found, options_of(found), moments_bytes=0, accumulation=1)
    return on_one_rank(
        chain,
        found,
        parallelism,
        recipe=recipe_of(found, Training()),
        moments_bytes=0,
        accumulation=1,
    )


SETTINGS: dict[str, dict[str, Any]] = {
    "units are gathered again": {},
    "units stay gathered": {"reshard_after_forward": False},
    "a unit is gathered ahead": {"prefetch_units": 1},
    "half of a unit stays": {"reshard_ranks": 2},
    "two replicas": {"dp_shard": 2, "dp_replicate": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("rows", [16, 512])
@pytest.mark.parametrize("case", SETTINGS)
def test_every_segment_stays_within_what_is_predicted_of_it(case: str, rows: int) -> None:
    # With few rows the weights are more than the activations.
    workload, found = profiled(3, rows)
    workload = Workload(workload.model, args=workload.args)
    parallelism = fsdp2(**SETTINGS[case])
    chain = ranked(found, parallelism)
    pieces = pieces_of(chain)
    ratios = []
    for piece in chained.from_iterable(pieces):
        if piece.option is not None:
            continue
        saved = [rows_of[0] for rows_of in pieces]
        cut = (*saved[: piece.first], piece, *saved[piece.stop :])
        observed = whole_step(
            workload, Plan(actions=actions_of(found, chain, cut)), parallelism=parallelism
        )
        ratios.append(peak_of(chain, cut)[0] / max(observed.peak_bytes))
    assert len(ratios) >= 3
    assert 1 <= min(ratios) <= max(ratios) <= 1.1


@pytest.mark.parametrize("case", SETTINGS)
def test_a_segment_needs_the_highest_of_its_moments(case: str) -> None:
    chain = ranked(profiled(6, 512)[1], fsdp2(**SETTINGS[case]))
    for piece in chained.from_iterable(pieces_of(chain)):
        heights = [
            chain.base(forward, moment.at) + moment.own_bytes
            for forward, moments in (
                (True, forward_of(chain, piece)),
                (False, backward_of(chain, piece)),
            )
            for moment in moments
        ]
        assert max(heights) == piece.need_bytes
