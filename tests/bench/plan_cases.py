"""Plans over models, option sets and budgets, executed: does the peak hold, and how near is it?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from tests.bench.plan_models import MODELS, workload_of
from tests.bench.plan_runs import Executed, execute, standing_bytes
from tests.bench.table import Row, at_least, at_most

from haversack.errors import HaversackError
from haversack.plan import Plan, PlanRequest, PlanStatus
from haversack.profile import OptionTable, Profile
from haversack.run import Budget, Optimizer, Training
from haversack.torch import Workload, apply, profile
from haversack_server.plan.answer import plan

SHARES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
ALLOCATED = (0.0, 0.2, 0.5, 0.8)
"""Shares at which the allocator is asked too: its count takes seconds."""
OPTION_SETS = ("save, recompute", "with policies", "with segments")


@dataclass(frozen=True, slots=True)
class Subject:
    """A model with its profile, its plain step, and what its allocator takes beside tensors."""

    name: str
    workload: Workload
    model: Any
    profile: Profile
    plain: Executed
    standing_bytes: int

    def with_reserve(self) -> "Subject":
        """Reserve what the allocator took beside live storages, plainly and at the floor."""
        runs = [self.plain]
        for options in OPTION_SETS:
            found = with_options(self.profile, options)
            with apply(self.model, planned(found, planned(found, 1).floor_bytes)):
                runs.append(execute(self.workload))
        reserve = max(max(0, (e.allocated_bytes or 0) - e.tracked_bytes) for e in runs)
        return replace(self, profile=replace(self.profile, workspace_bytes=reserve))


@dataclass(frozen=True, slots=True)
class Case:
    """One plan, executed; bytes leave out what stood before the step."""

    subject: str
    options: str
    budget_bytes: int
    predicted_bytes: int
    reserve_bytes: int
    executed: Executed
    is_exact: bool
    rung: str

    @property
    def holds(self) -> bool:
        """Whether both counts are within the budget."""
        highest = max(self.executed.tracked_bytes, self.executed.allocated_bytes or 0)
        return highest <= self.budget_bytes

    @property
    def ratio(self) -> float:
        """Predicted over executed, by the tracker."""
        return (self.predicted_bytes - self.reserve_bytes) / self.executed.tracked_bytes

    @property
    def allocated_ratio(self) -> float:
        """Predicted, with the reserve, over executed, by the allocator."""
        assert self.executed.allocated_bytes is not None
        return self.predicted_bytes / self.executed.allocated_bytes


def subjects(names: Sequence[str] = tuple(MODELS)) -> Iterator[Subject]:
    """Profile each model and run its plain step; one that is refused is said and left out."""
    for name in names:
        workload = workload_of(name)
        try:
            found = profile(workload)
        except HaversackError as refused:
            print(f"  refused: {name}: {refused}", flush=True)
            continue
        plain = execute(workload)
        yield Subject(name, workload, workload.model, found, plain, standing_bytes(workload))


def with_options(found: Profile, options: str) -> Profile:
    """Leave the options of a set."""
    blocks = found.blocks
    if options != "with segments":
        blocks = tuple(replace(b, segment_bytes=None) for b in blocks)
    tables = found.tables
    if options == "save, recompute":
        tables = tuple(map(_plain, tables))
    return replace(found, blocks=blocks, tables=tables)


def _plain(table: OptionTable) -> OptionTable:
    kept = [i for i, name in enumerate(table.option) if not name.startswith("selective")]
    columns = {
        name: tuple(getattr(table, name)[i] for i in kept)
        for name in ("option", "retained_bytes", "forward_peak_bytes", "backward_peak_bytes")
    }
    return OptionTable(**columns, extra_ns=tuple(table.extra_ns[i] for i in kept))


def planned(found: Profile, budget_bytes: int) -> Plan:
    """Plan without optimizer states."""
    request = PlanRequest(
        profile=found,
        budget=Budget(bytes=budget_bytes),
        training=Training(optimizer=Optimizer.SGD),
        frontier_points=0,
    )
    return plan(request)


def cases_of(subject: Subject, shares: Sequence[float] = SHARES) -> Iterator[Case]:
    """Plan and execute every option set at every share between the floor and everything saved."""
    subject = subject.with_reserve()
    for options in OPTION_SETS:
        found = with_options(subject.profile, options)
        floor = planned(found, 1).floor_bytes
        everything = planned(found, 2**60).predicted_peak_bytes or floor
        for share in shares:
            budget_bytes = floor + int(share * (everything - floor))
            answer = planned(found, budget_bytes)
            yield _case(subject, options, answer, budget_bytes, share in ALLOCATED)


def _case(subject: Subject, options: str, answer: Plan, budget_bytes: int, allocator: bool) -> Case:
    assert answer.status in (PlanStatus.OPTIMAL, PlanStatus.FEASIBLE)
    with apply(subject.model, answer):
        executed = execute(subject.workload, allocator=allocator)
    beside = subject.standing_bytes
    return Case(
        subject=subject.name,
        options=options,
        budget_bytes=budget_bytes - beside,
        predicted_bytes=(answer.predicted_peak_bytes or 0) - beside,
        reserve_bytes=subject.profile.workspace_bytes,
        executed=executed,
        is_exact=executed.equals(subject.plain),
        rung=answer.rung.name.lower(),
    )


def rows(found: Sequence[Case]) -> Iterator[Row]:
    """Gate what the issue gates, then say each model by itself."""
    section = "executed"
    holds = 100 * sum(case.holds for case in found) / len(found)
    yield at_least(section, "cases (model, option set, budget)", len(found), 200, "cases")
    yield at_least(section, "executed peak within the budget, by each count taken", holds, 100, "%")
    counted = [case for case in found if case.executed.allocated_bytes is not None]
    within = sum(case.holds for case in counted)
    said = f"within the budget by the allocator's count too, of {len(counted)}"
    yield at_least(section, said, within, len(counted), "cases")
    allocated = [case.allocated_ratio for case in counted]
    yield Row(section, "predicted with reserve / allocated, median", median(allocated), "x")
    yield Row(section, "predicted with reserve / allocated, largest", max(allocated), "x")
    exact = 100 * sum(case.is_exact for case in found) / len(found)
    yield at_least(section, "loss and gradients equal to the bit", exact, 100, "%")
    ratios = [case.ratio for case in found]
    yield at_least(section, "predicted / executed, least", min(ratios), 1.0)
    yield at_most(section, "predicted / executed, median", median(ratios), 1.05)
    yield at_most(section, "predicted / executed, largest", max(ratios), 1.10)
    segments = sum(case.rung == "segments" for case in found)
    yield Row(section, "cases answered by segments", segments, "cases")
    for name in dict.fromkeys(case.subject for case in found):
        own = [case for case in found if case.subject == name]
        ratios = [case.ratio for case in own]
        what = f"{name}: predicted / executed"
        yield Row("by model", f"{what}, median", median(ratios), "x")
        yield Row("by model", f"{what}, largest", max(ratios), "x")
        broken = sum(not case.holds for case in own)
        yield Row("by model", f"{name}: over the budget, of {len(own)}", broken, "cases")
