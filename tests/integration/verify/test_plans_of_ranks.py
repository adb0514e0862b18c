"""Plans of several ranks, from their files: ranks share the model as planned, and are measured."""

import json
import pathlib
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.verify.conftest import report_of

from haversack import write_plan
from haversack.parallelism import Parallelism, Sharding
from haversack.plan import Plan, PlanRequest
from haversack.requests import verify_request
from haversack.run import BlockAction, Budget, Precision, Training, WorkloadReference
from haversack.torch import profile
from haversack.torch.optimizers import with_optimizer
from haversack.training import NumberType, Optimizer
from haversack.verify import (
    Facet,
    FacetValue,
    VerifyPlan,
    VerifyReport,
    VerifyRequest,
    VerifyVerdict,
    VerifyWorld,
)
from haversack_server.jobs import JobRunner
from haversack_server.plan.answer import plan
from haversack_server.verify.predictions import NUMBERS_BYTES
from haversack_server.worker.load import load

pytestmark = pytest.mark.asyncio(loop_scope="session")
MLP = {"batch": 512, "layers": 4}
MIXED = Precision.FP32_BF16_COMPUTE


def made(parallelism: Parallelism, training: Training, precision: Precision) -> Plan:
    """Plan near the least peak of each rank."""
    workload = load(WorkloadReference(name="mlp", args_json=json.dumps(MLP)), allow=(), path=())
    given = with_optimizer(workload, Optimizer.ADAMW)
    found = replace(profile(given, precision=precision), optimizer=Optimizer.ADAMW)
    asked = PlanRequest(
        profile=found,
        parallelism=parallelism,
        training=training,
        budget=Budget(bytes=2**30),
        frontier_points=0,
    )
    most = plan(asked)
    saved = (most.predicted_peak_bytes or 0) - most.floor_bytes
    return plan(replace(asked, budget=Budget(bytes=most.floor_bytes + saved // 3)))


async def verified(
    runner: JobRunner, answer: Plan, path: pathlib.Path, shard: str, ranks: int
) -> VerifyReport:
    write_plan(answer, path)
    asked: dict[str, Any] = {"workload": "mlp", "args": MLP, "plan": path}
    request = verify_request(**asked, shard=shard, world_size=ranks)
    report = await report_of(runner, request)
    assert report.failure is None
    return report


WAYS: dict[str, tuple[str, Parallelism, Training, Precision]] = {
    "fsdp2": (
        "fsdp2",
        Parallelism(world_size=2, sharding=Sharding.FSDP2),
        Training(),
        Precision.UNSPECIFIED,
    ),
    "replicas of shards, in bf16": (
        "fsdp2",
        Parallelism(world_size=4, sharding=Sharding.FSDP2, dp_shard=2),
        Training(precision=MIXED, reduce_type=NumberType.FP32),
        MIXED,
    ),
    "shards that stay gathered": (
        "fsdp2",
        Parallelism(world_size=2, sharding=Sharding.FSDP2, reshard_after_forward=False),
        Training(),
        Precision.UNSPECIFIED,
    ),
    "replicas": ("ddp", Parallelism(world_size=2), Training(), Precision.UNSPECIFIED),
    "replicas whose gradients are views": (
        "ddp",
        Parallelism(world_size=2, gradient_as_bucket_view=True),
        Training(),
        Precision.UNSPECIFIED,
    ),
}


@pytest.mark.parametrize(
    "way",
    [each if each == "fsdp2" else pytest.param(each, marks=pytest.mark.slow) for each in WAYS],
)
async def test_every_rank_takes_what_the_plan_predicts(
    runner: JobRunner, tmp_path: pathlib.Path, way: str
) -> None:
    shard, parallelism, training, precision = WAYS[way]
    ranks = parallelism.world_size or 1
    answer = made(parallelism, training, precision)
    predicted = answer.predicted_peak_bytes or 0
    report = await verified(runner, answer, tmp_path / "plan.json", shard, ranks)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert report.applied is not None
    assert report.sharded is not None
    peaks = [rank.planned_peak_bytes or 0 for rank in report.sharded.ranks]
    assert len(peaks) == ranks
    assert report.applied.measured_peak_bytes == max(peaks) < report.applied.plain_peak_bytes
    assert all(0.9 * predicted <= peak <= predicted + NUMBERS_BYTES for peak in peaks)
    assert not [each for each in report.applied.not_compared if each.startswith("peak")]
    assert report.applied.replayed_count == len(report.recompute_counts) > 0
    assert report.warnings == ()
    (said,) = (each for each in report.assumptions if "as the plan has it" in each)
    assert f"{ranks} ranks under" in said


@pytest.mark.slow
async def test_ranks_that_take_more_than_the_plan_predicts_are_found(
    runner: JobRunner, tmp_path: pathlib.Path
) -> None:
    answer = made(*WAYS["replicas"][1:])
    low = replace(answer, predicted_peak_bytes=(answer.predicted_peak_bytes or 0) // 2)
    report = await verified(runner, low, tmp_path / "plan.json", "ddp", 2)
    (warning,) = report.warnings
    assert "more than the" in warning
    assert "at the fullest moment of rank" in warning
    memory = next(each for each in report.facets if each.facet is Facet.MEMORY)
    assert memory.value is FacetValue.DIFFERENT
    assert report.verdict is VerifyVerdict.EQUIVALENT  # a warning decides only if strict


@pytest.mark.slow
async def test_a_plan_of_other_ranks_is_applied_and_not_measured(
    runner: JobRunner, tmp_path: pathlib.Path
) -> None:
    answer = made(Parallelism(world_size=8), Training(), Precision.UNSPECIFIED)
    report = await verified(runner, answer, tmp_path / "plan.json", "ddp", 2)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert report.applied is None
    assert report.sharded is not None
    assert [each.planned_peak_bytes for each in report.sharded.ranks] == [None, None]
    assert any("The plan is for 8 ranks under" in each for each in report.assumptions)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "said"),
    [("once", "ValueError: a second forward"), ("once_in_memory", "OutOfMemoryError: no room")],
)
async def test_a_measured_step_that_raises_on_ranks_is_said_and_decides_nothing(
    runner: JobRunner, case: str, said: str
) -> None:
    actions = tuple(
        BlockAction(block=f"layers.{place}", option=option)
        for place, option in enumerate(("recompute", "save"))
    )
    request = VerifyRequest(
        workload=WorkloadReference(entry_point=f"jobworkloads.ranks:{case}"),
        plan=VerifyPlan(actions=actions, parallelism=Parallelism(world_size=2)),
        world=VerifyWorld(size=2, sharding=Sharding.REPLICATED),
    )
    report = await report_of(runner, request)
    assert (report.failure, report.verdict) == (None, VerifyVerdict.EQUIVALENT)
    assert report.applied is None
    assert any(said in each for each in report.assumptions)
