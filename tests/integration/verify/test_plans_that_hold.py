"""Plans that Plan made, from their files: what they predict is held against what is measured.

The default tests have one model, planned in this process; in the slow tier a worker profiles and
certifies each, as `haversack plan --workload` does.
"""

import json
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from haversack import write_plan
from haversack.plan import Plan, PlanRequest
from haversack.requests import plan_request, verify_request
from haversack.run import Budget, WorkloadReference
from haversack.torch import profile
from haversack.torch.optimizers import with_optimizer
from haversack.training import Optimizer
from haversack.verify import VerifyReport, VerifyRequest, VerifyVerdict
from haversack_server.execution import JobLimits
from haversack_server.jobs import JobRunner
from haversack_server.plan.answer import plan
from haversack_server.planner import Planner
from haversack_server.verify.predictions import NUMBERS_BYTES
from haversack_server.worker.load import load

pytestmark = pytest.mark.asyncio(loop_scope="session")
PACKAGES = pathlib.Path(__file__).parent / "packages"
Verified = Callable[[Plan], Awaitable[VerifyReport]]
MLP = {"batch": 512, "layers": 6}
GPT2 = {"checkpointed": 0, "tokens": 64}
# Between the least peak and that of saving everything; of the residual net so near the least that
# segments are needed.
GPT2_BYTES, LLAMA_BYTES, RESNET_BYTES = 3_100_000, 2_100_000, 1_510_000


@pytest_asyncio.fixture(loop_scope="session")
async def planner() -> AsyncIterator[Planner]:
    made = Planner(("jobworkloads.",), (str(PACKAGES),), JobLimits(deadline_ns=120 * 10**9))
    yield made
    await made.close()


def request(workload: str, args: dict[str, int], path: pathlib.Path) -> VerifyRequest:
    return verify_request(workload=workload, args=args, plan=path)


async def verified(
    runner: JobRunner, workload: str, args: dict[str, int], made: Plan, path: pathlib.Path
) -> VerifyReport:
    """Verify a plan as its file has it."""
    write_plan(made, path)
    events = [event async for event in runner.submit(request(workload, args, path)).events()]
    report = events[-1].report
    assert report is not None
    assert report.failure is None
    return report


def check_holds(report: VerifyReport, made: Plan) -> None:
    """Check that the peak is as predicted, and that what the plan recomputes ran again."""
    found = report.applied
    assert found is not None
    predicted = made.predicted_peak_bytes or 0
    assert found.predicted_peak_bytes == predicted
    assert 0.9 * predicted <= found.measured_peak_bytes <= predicted + NUMBERS_BYTES
    changed = {each.block for each in made.actions if each.option != "save"}
    assert {each.region for each in report.recompute_counts} == changed
    assert found.replayed_count == len(changed) > 0
    assert found.segments_in_effect == found.segment_count
    assert [each for each in found.not_compared if each.startswith("peak")] == []
    assert report.warnings == ()
    assert report.verdict is VerifyVerdict.EQUIVALENT


def between(everything: Plan, share: float) -> int:
    """Give a budget between the least peak and that of saving everything."""
    most = everything.predicted_peak_bytes or 0
    return int(everything.floor_bytes + share * (most - everything.floor_bytes))


async def test_a_plan_with_segments_takes_what_it_predicts_with_its_optimizer(
    runner: JobRunner, tmp_path: pathlib.Path
) -> None:
    reference = WorkloadReference(name="mlp", args_json=json.dumps(MLP))
    given = with_optimizer(load(reference, allow=(), path=()), Optimizer.SGD_MOMENTUM)
    found = replace(profile(given), optimizer=Optimizer.SGD_MOMENTUM)
    asked = PlanRequest(profile=found, budget=Budget(bytes=2**30), frontier_points=0)
    budget = Budget(bytes=between(plan(asked), 0.1))
    made = plan(replace(asked, budget=budget))
    assert any(action.segment for action in made.actions)
    report = await verified(runner, "mlp", MLP, made, tmp_path / "plan.json")
    check_holds(report, made)
    assert report.applied is not None
    assert "the SGD that the plan counts, with its state" in report.applied.method


async def of_code(planner: Planner, workload: str, args: dict[str, int], budget_bytes: int) -> Plan:
    """Plan and certify a workload as `haversack plan --workload` does."""

    async def solve(asked: PlanRequest) -> Plan:
        return plan(asked)

    asked = plan_request(workload=workload, args=args, budget=budget_bytes, frontier_points=0)
    made = await planner.plan(asked, solve)
    assert made.certificate is not None
    assert made.certificate.holds
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "args", "budget_bytes"),
    [("gpt2-tiny", GPT2, GPT2_BYTES), ("jobworkloads.planned:llama", {}, LLAMA_BYTES)],
)
async def test_a_plan_of_code_takes_what_it_predicts(
    runner: JobRunner,
    planner: Planner,
    tmp_path: pathlib.Path,
    workload: str,
    args: dict[str, int],
    budget_bytes: int,
) -> None:
    made = await of_code(planner, workload, args, budget_bytes)
    assert made.counted is not None
    assert made.counted.optimizer is Optimizer.ADAMW  # it has none of its own
    report = await verified(runner, workload, args, made, tmp_path / "plan.json")
    check_holds(report, made)


@pytest.mark.slow
async def test_a_plan_that_convolutions_take_more_than_is_found_and_one_with_the_measured_holds(
    runner: JobRunner, planner: Planner, tmp_path: pathlib.Path
) -> None:
    workload, path = "jobworkloads.planned:resnet", tmp_path / "plan.json"
    made = await of_code(planner, workload, {}, RESNET_BYTES)
    assert any(action.segment for action in made.actions)
    report = await verified(runner, workload, {}, made, path)
    # What oneDNN's convolutions take beside tensors no profile sees.
    (warning,) = report.warnings
    assert "more than the" in warning
    assert report.applied is not None
    measured: Any = {"allocated_bytes": report.applied.measured_peak_bytes}
    assert made.budget is not None
    again = plan(
        plan_request(profile=path, measurements=[measured], budget=made.budget.allocated_bytes)
    )
    check_holds(await verified(runner, workload, {}, again, path), again)
