"""Plans over models, option sets and budgets, certified and executed.

Does the peak hold, and how near to it are the prediction and the certificate?
"""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.bench.plan_certified import Actions, Certified, Steps
from tests.bench.plan_models import MODELS, workload_of
from tests.bench.plan_runs import Executed, execute, standing_bytes

from haversack.basis import Basis
from haversack.errors import HaversackError
from haversack.plan import Plan, PlanRequest, PlanStatus
from haversack.profile import OptionTable, Profile
from haversack.run import Budget
from haversack.torch import Workload, apply, profile
from haversack_server.plan.answer import plan

SHARES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
ALLOCATED = (0.0, 0.2, 0.5, 0.8)
"""Shares at which the allocator is asked too: its count takes seconds."""
OPTION_SETS = ("save, recompute", "with policies", "with segments")


@dataclass(frozen=True, slots=True)
class Subject:
    """A model with its profile and its plain step.

    The profile's reserve is of the plain step and of plans: ``reserved_for`` has their actions.
    """

    name: str
    workload: Workload
    model: Any
    profile: Profile
    plain: Executed
    standing_bytes: int
    reserved_for: frozenset[Actions] = frozenset()

    def with_reserve(self) -> "Subject":
        """Reserve what the allocator took beside live storages, plainly and at the floor."""
        runs, reserved_for = [self.plain], set[Actions]()
        for options in OPTION_SETS:
            found = with_options(self.profile, options)
            answer = planned(found, planned(found, 1).floor_bytes)
            reserved_for.add(answer.actions)
            with apply(self.model, answer):
                runs.append(execute(self.workload))
        reserve = max(max(0, (e.allocated_bytes or 0) - e.tracked_bytes) for e in runs)
        return replace(
            self,
            profile=replace(self.profile, workspace_bytes=reserve),
            reserved_for=frozenset(reserved_for),
        )

    def gave_reserve(self, actions: Actions) -> bool:
        """Whether the reserve was taken from the very step that these actions make."""
        return actions in self.reserved_for or all(each.option == "save" for each in actions)


@dataclass(frozen=True, slots=True)
class Case:
    """One plan, certified and executed; bytes leave out what stood before the step.

    ``plans`` counts how often it was planned, ``gave_reserve`` is of a plan that is no test of it.
    """

    subject: str
    options: str
    budget_bytes: int
    predicted_bytes: int
    certified_bytes: int
    reserve_bytes: int
    executed: Executed
    basis: Basis
    plans: int
    gave_reserve: bool
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
    def certified_ratio(self) -> float:
        """What the certificate saw over executed, by the tracker."""
        return (self.certified_bytes - self.reserve_bytes) / self.executed.tracked_bytes

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
        gc.collect()
        gc.freeze()  # else every step looks through all that is loaded: most of a step's time
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
    """Plan, and run nothing."""
    return plan(_request(found, budget_bytes))


def _request(found: Profile, budget_bytes: int) -> PlanRequest:
    return PlanRequest(profile=found, budget=Budget(bytes=budget_bytes), frontier_points=0)


def cases_of(subject: Subject, shares: Sequence[float] = SHARES) -> Iterator[Case]:
    """Plan and execute every option set at every share between the floor and everything saved."""
    subject, steps = subject.with_reserve(), Steps(subject.workload)
    for options in OPTION_SETS:
        found = with_options(subject.profile, options)
        floor = planned(found, 1).floor_bytes
        everything = planned(found, 2**60).predicted_peak_bytes or floor
        for share in shares:
            budget_bytes = floor + int(share * (everything - floor))
            answer = steps.certified(_request(found, budget_bytes))
            yield _case(subject, options, answer, budget_bytes, share in ALLOCATED)


def _case(
    subject: Subject, options: str, certified: Certified, budget_bytes: int, allocator: bool
) -> Case:
    answer, certificate = certified.plan, certified.plan.certificate
    assert answer.status in (PlanStatus.OPTIMAL, PlanStatus.FEASIBLE)
    assert certificate is not None
    with apply(subject.model, answer):
        executed = execute(subject.workload, allocator=allocator)
    beside = subject.standing_bytes
    return Case(
        subject=subject.name,
        options=options,
        budget_bytes=budget_bytes - beside,
        predicted_bytes=(answer.predicted_peak_bytes or 0) - beside,
        certified_bytes=certificate.observed_peak_bytes - beside,
        reserve_bytes=subject.profile.workspace_bytes,
        executed=executed,
        basis=answer.basis,
        plans=certified.plans,
        gave_reserve=subject.gave_reserve(answer.actions),
        is_exact=executed.equals(subject.plain),
        rung=answer.rung.name.lower(),
    )
