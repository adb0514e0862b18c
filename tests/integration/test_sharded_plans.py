"""Plans of a sharded workload: predicted, certified without the other ranks, and real.

The certificate follows the storages of a step under ``fully_shard`` and reads no prediction; the
real step runs on two ranks of gloo, under the worker's own tracker.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are sharded")

import torch
from tests.integration.small_gpt import BLOCKS, workload_of

from haversack import write_plan
from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.parallelism import Parallelism, Sharding
from haversack.plan import Plan, PlanRequest, PlanStatus
from haversack.profile import Profile
from haversack.run import BlockAction, Budget, Training
from haversack.torch import Workload, certify, profile
from haversack.torch.divided import divided
from haversack.torch.whole_step import whole_step
from haversack_server.plan.answer import plan

APART = 1.02


@cache
def profiled() -> tuple[Workload, Profile]:
    """A workload and its profile."""
    workload = workload_of()
    return workload, profile(workload)


def fsdp2(ranks: int, **settings: Any) -> Parallelism:
    return Parallelism(world_size=ranks, sharding=Sharding.FSDP2, **settings)


def planned(
    parallelism: Parallelism, share_permille: int, found: Profile | None = None, **settings: Any
) -> Plan:
    """Plan with a budget between the floor and what saving everything needs."""

    def ask(budget_bytes: int) -> Plan:
        return plan(
            PlanRequest(
                profile=found or profiled()[1],
                budget=Budget(bytes=budget_bytes),
                parallelism=parallelism,
                training=Training(**settings),
                frontier_points=0,
            )
        )

    most = ask(2**40)
    assert most.predicted_peak_bytes is not None
    between = most.predicted_peak_bytes - most.floor_bytes
    return ask(most.floor_bytes + between * share_permille // 1000)


@pytest.mark.parametrize(
    ("ranks", "reshard"),
    [
        (2, False),
        (8, True),
        pytest.param(2, True, marks=pytest.mark.slow),
        pytest.param(8, False, marks=pytest.mark.slow),
    ],
)
def test_a_sharded_plan_needs_what_it_predicts(ranks: int, reshard: bool) -> None:
    workload, _ = profiled()
    parallelism = fsdp2(ranks, reshard_after_forward=reshard)
    answer = planned(parallelism, 300)
    assert answer.parallelism == parallelism
    hook = sys.excepthook
    certificate = certify(workload, answer)
    assert sys.excepthook is hook
    with pytest.raises(InvalidRequestError, match=f"the plan is for {ranks} ranks under FSDP2"):
        certify(workload, answer, parallelism=fsdp2(1))
    assert answer.predicted_peak_bytes is not None
    assert answer.extra_ns > 0
    assert certificate.holds
    assert certificate.findings == ()
    seen = certificate.observed_peak_bytes
    assert seen <= answer.predicted_peak_bytes <= APART * seen
    optimizer = next(each for each in certificate.phases if each.phase == "optimizer")
    assert optimizer.observed_bytes <= optimizer.predicted_bytes <= APART * optimizer.observed_bytes


SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "weights are more than activations": ({"rows": 1}, {}, {}),
    "rows that ranks do not divide, a unit gathered ahead": (
        {"width": 60},
        {"prefetch_units": 1},
        {},
    ),
    "two microbatches": ({}, {}, {"accumulation": 2}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SETTINGS)
def test_so_do_other_settings(case: str) -> None:
    of_workload, of_ranks, of_training = SETTINGS[case]
    workload = workload_of(**of_workload)
    found = profile(workload)
    parallelism = fsdp2(8, **of_ranks)
    answer = planned(parallelism, 300, found, **of_training)
    observed = whole_step(
        workload,
        answer,
        microbatches=of_training.get("accumulation", 1),
        parallelism=parallelism,
    )
    assert answer.predicted_peak_bytes is not None
    seen = max(observed.peak_bytes)
    assert seen <= answer.predicted_peak_bytes <= APART * seen


def test_a_certified_model_is_left_as_it_was() -> None:
    workload, _ = profiled()
    model: Any = workload.model

    def state() -> list[Any]:
        modules = [(type(each), dict(each.__dict__)) for each in model.modules()]
        hooks = [
            (len(each._forward_hooks), len(each._forward_pre_hooks)) for each in model.modules()
        ]
        return [*modules, hooks, [id(each) for each in model.parameters()]]

    before = state()
    saved = Plan(
        actions=tuple(BlockAction(block=f"h.{place}", option="save") for place in range(BLOCKS))
    )
    first = whole_step(workload, saved, parallelism=fsdp2(2))
    assert state() == before
    assert not torch.distributed.is_initialized()
    assert whole_step(workload, saved, parallelism=fsdp2(2)) == first


def test_on_one_rank_nothing_is_sharded() -> None:
    _, found = profiled()
    request = PlanRequest(profile=found, budget=Budget(bytes=2**40))
    assert plan(replace(request, parallelism=fsdp2(1))).moments == plan(request).moments


def test_more_ranks_need_less_and_no_segments() -> None:
    _, found = profiled()
    answers = [
        plan(PlanRequest(profile=found, budget=Budget(bytes=2**40), parallelism=fsdp2(ranks)))
        for ranks in (2, 8, 64)
    ]
    floors = [each.floor_bytes for each in answers]
    assert floors == sorted(floors, reverse=True)
    assert all(each.status is PlanStatus.OPTIMAL for each in answers)
    assert all(not action.segment for each in answers for action in each.actions)
    assert "rank 0" in " ".join(answers[0].assumptions)


@pytest.mark.parametrize(
    "parallelism",
    [
        Parallelism(world_size=8, sharding=Sharding.ZERO_3),
        Parallelism(world_size=8),
        Parallelism(world_size=8, dp_shard=4, sharding=Sharding.FSDP2),
        Parallelism(world_size=8, tp=2, sharding=Sharding.FSDP2),
    ],
)
def test_other_ways_to_spread_are_refused(parallelism: Parallelism) -> None:
    workload, found = profiled()
    saved = Plan(actions=(BlockAction(block="h.0", option="save"),))
    asked = PlanRequest(profile=found, budget=Budget(bytes=2**40), parallelism=parallelism)
    ways: list[Callable[[], Any]] = [
        lambda: plan(asked),
        lambda: certify(workload, saved, parallelism=parallelism),
    ]
    for way in ways:
        with pytest.raises(NotSupportedError, match="FSDP2 over all ranks"):
            way()


def test_a_parameter_of_two_blocks_cannot_be_sharded() -> None:
    model: Any = workload_of().model
    model.h[2].wide.weight = model.h[1].wide.weight
    parts = divided(model, {f"h.{place}": model.h[place] for place in range(BLOCKS)})
    assert [name for name, parameters in parts.items() if not parameters] == ["h.1", "h.2"]
    _, found = profiled()
    blocks = [replace(each, parameters=parts.get(each.name, ())) for each in found.blocks]
    asked = PlanRequest(
        profile=replace(found, blocks=tuple(blocks)),
        budget=Budget(bytes=2**40),
        parallelism=fsdp2(2),
    )
    with pytest.raises(
        InvalidRequestError, match=r"h\.1 has parameters .* another block"
    ) as caught:
        plan(asked)
    assert caught.value.violations[0].field == "profile.blocks[2].parameters"


@pytest.mark.slow
def test_two_real_ranks_compute_the_same_and_need_what_is_certified(tmp_path: Path) -> None:
    workload, _ = profiled()
    parallelism = fsdp2(2)
    answer = planned(parallelism, 300)
    observed = whole_step(workload, answer, parallelism=parallelism)
    plan_file = str(tmp_path / "plan.json")
    write_plan(answer, plan_file)
    program = Path(__file__).with_name("sharded_two_ranks.py")
    root = program.parents[2]
    path = os.pathsep.join(str(root / each) for each in ("client", "server", "."))
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), str(rank), str(tmp_path / "gloo"), plan_file],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    highest = max(observed.of_phase("forward"), observed.of_phase("backward"))
    for said, failed in (rank.communicate(timeout=180) for rank in ranks):
        equal, peak_bytes = said.split() or (failed, "0")
        assert equal == "True", failed
        assert int(peak_bytes) <= highest <= APART * int(peak_bytes)
