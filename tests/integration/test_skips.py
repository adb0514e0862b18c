"""Nets whose tensors skip over blocks: every plan's peak, and the best plan, against trying all.

A tensor that several blocks read counts once, for as long as one of them keeps it. The executed
peak is that of the whole step, which reads no table.
"""

import itertools
from dataclasses import replace
from functools import cache

import pytest

pytest.importorskip("torch", reason="models of PyTorch are stepped")

import torch
from tests.integration.skipping_nets import BLOCKS, NETS

from haversack.plan import Plan, PlanConstraints, PlanRequest
from haversack.profile import OptionTable, Profile
from haversack.run import BlockAction, Budget
from haversack.torch import Workload, profile
from haversack.torch.whole_step import whole_step
from haversack_server.plan.answer import plan

WAYS = ("save", "recompute")


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
    pytest.importorskip("ortools", reason="the extra graph")
    rows = every_plan(net)
    assert [predicted for predicted, _, _ in rows] == [executed for _, executed, _ in rows]
    _, found = profiled(net)
    floor_bytes = ask(found, 1).floor_bytes
    assert floor_bytes == min(executed for _, executed, _ in rows)
    for budget_bytes in sorted({executed for _, executed, _ in rows}):
        least_ns = min(extra for _, executed, extra in rows if executed <= budget_bytes)
        assert ask(found, budget_bytes).extra_ns == least_ns
