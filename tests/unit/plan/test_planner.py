"""Plans of code with a scripted worker: what it is asked, and what is made of its answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from haversack._calls import PLAN_TIMEOUT
from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.observed import Observed
from haversack.plan import BudgetConversion, MomentPeak, Plan, PlanRequest, PlanStatus
from haversack.profile import Profile
from haversack.requests import plan_request
from haversack.run import BlockAction, Optimizer
from haversack_server import planner as planner_module
from haversack_server.execution import JobLimits
from haversack_server.plan.orders import (
    Failure,
    Fault,
    Progress,
    StepOrder,
    WorkerAnswer,
    WorkloadOrder,
)
from haversack_server.planner import Planner

PROFILE = Profile(fingerprint="f", optimizer_state_bytes=8)
BUDGET = 1000


@dataclass
class Scripted:
    """A worker that answers as it is told, and remembers what it was asked."""

    answers: Sequence[WorkerAnswer]
    asked: list[Any] = field(default_factory=list)
    heard: int = 0

    async def ask(self, order: Any, kind: type[WorkerAnswer]) -> WorkerAnswer:
        self.asked.append(order)
        return await self.hear(kind)

    async def hear(self, kind: type[WorkerAnswer]) -> WorkerAnswer:
        self.heard += 1
        return self.answers[self.heard - 1]

    @contextlib.asynccontextmanager
    async def worker(self, order: str, **limits: Any) -> AsyncIterator["Scripted"]:
        assert order == "plan"
        yield self


@dataclass
class Solver:
    """A solver whose plan needs 900 bytes and the profile's reserve, and takes 10 ns."""

    asked: list[PlanRequest] = field(default_factory=list)

    async def __call__(self, request: PlanRequest) -> Plan:
        self.asked.append(request)
        assert request.profile is not None
        peak = 900 + request.profile.workspace_bytes
        plan = Plan(
            status=PlanStatus.OPTIMAL,
            actions=(BlockAction(block="a", option="recompute"),),
            predicted_peak_bytes=peak,
            moments=(MomentPeak(phase="backward", block="a", peak_bytes=peak),),
            budget=BudgetConversion(allocated_bytes=BUDGET),
            extra_ns=10,
        )
        return plan if peak <= BUDGET else replace(plan, status=PlanStatus.INFEASIBLE, actions=())


def seen(peak_bytes: int) -> WorkerAnswer:
    observed = Observed(phase=("backward",), block=("a",), peak_bytes=(peak_bytes,))
    return WorkerAnswer(observed=observed)


def answered(
    monkeypatch: pytest.MonkeyPatch, *answers: WorkerAnswer, **keywords: Any
) -> tuple[Plan, Scripted, Solver]:
    monkeypatch.setattr(planner_module, "check_workload", lambda *_: None)
    scripted, solver = Scripted(answers), Solver()
    found = Planner(("pkg",))
    found.workers = scripted  # type: ignore[assignment] # as far as a planner uses them
    request = plan_request(workload="pkg:build", **keywords)
    return asyncio.run(found.plan(request, solver)), scripted, solver


def test_a_plan_as_predicted_is_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, worker, solver = answered(
        monkeypatch, WorkerAnswer(profile=PROFILE), seen(890), budget=BUDGET, accumulation=4,
        optimizer="rmsprop",
    )  # fmt: skip
    first, step = worker.asked
    assert first == WorkloadOrder(
        workload=plan_request(workload="pkg:build").workload,  # type: ignore[arg-type] # it is there
        allow=("pkg",),
        optimizer=Optimizer.RMSPROP,
    )
    assert step == StepOrder(actions=answer.actions, microbatches=4)
    # The optimizer that was named has been stepped, so for the solver it is the profile's own.
    (asked,) = solver.asked
    assert asked.training.optimizer is Optimizer.UNSPECIFIED
    assert asked.workload is None
    assert answer.profile == PROFILE
    assert answer.certificate is not None
    assert not answer.certificate.replanned


def test_a_plan_above_its_prediction_is_made_anew_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, worker, solver = answered(
        monkeypatch, WorkerAnswer(profile=PROFILE), seen(950), seen(950), budget=BUDGET
    )
    assert len(worker.asked) == 3
    assert [each.profile and each.profile.workspace_bytes for each in solver.asked] == [0, 50]
    assert answer.predicted_peak_bytes == 950
    assert answer.profile == replace(PROFILE, workspace_bytes=50)
    assert answer.certificate is not None
    assert answer.certificate.replanned
    assert answer.certificate.holds


def test_where_the_repaired_figures_leave_no_plan_the_answer_is_infeasible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer, worker, _ = answered(
        monkeypatch, WorkerAnswer(profile=PROFILE), seen(1100), budget=BUDGET
    )
    assert len(worker.asked) == 2
    assert answer.status is PlanStatus.INFEASIBLE
    assert answer.certificate is not None
    assert not answer.certificate.holds


def test_without_a_budget_the_answer_is_the_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, _, solver = answered(monkeypatch, WorkerAnswer(profile=PROFILE))
    assert not solver.asked
    assert (answer.status, answer.profile) == (PlanStatus.UNSPECIFIED, PROFILE)
    assert "no budget was named" in answer.reason


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.WORKLOAD, InvalidRequestError),
        (Fault.UNSUPPORTED, NotSupportedError),
        (Fault.MEMORY, NotSupportedError),
    ],
)
def test_a_failure_is_told_in_the_worker_s_words(
    monkeypatch: pytest.MonkeyPatch, fault: Fault, error: type[Exception]
) -> None:
    failed = WorkerAnswer(failure=Failure(fault=fault, message="layers.1 cannot be profiled"))
    with pytest.raises(error, match=r"^workload: layers\.1 cannot be profiled$"):
        answered(monkeypatch, failed, budget=BUDGET)


def test_progress_is_logged_until_the_answer_comes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", planner_module.__name__)
    steps = [WorkerAnswer(progress=Progress(what=f"step {i}", done=i, steps=2)) for i in (1, 2)]
    answer, worker, _ = answered(
        monkeypatch, *steps, WorkerAnswer(profile=PROFILE), seen(890), budget=BUDGET,
        blocks=["layers"],
    )  # fmt: skip
    assert answer.profile == PROFILE
    assert worker.asked[0].blocks == ("layers",)
    said = [(each.getMessage(), vars(each)["done"], vars(each)["steps"]) for each in caplog.records]
    assert said == [("step 1", 1, 2), ("step 2", 2, 2), ("the planned step", 0, 1)]


def test_a_fault_of_blocks_names_their_field(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = Failure(fault=Fault.WORKLOAD, message="no such module", field="blocks[0]")
    with pytest.raises(InvalidRequestError) as refused:
        answered(monkeypatch, WorkerAnswer(failure=failure), budget=BUDGET, blocks=["layers"])
    assert refused.value.field == "blocks[0]"


def test_a_client_waits_for_longer_than_a_worker_may_run() -> None:
    # So that the sentence is the planner's, which says what would do.
    assert JobLimits().deadline_ns / 1e9 < PLAN_TIMEOUT
