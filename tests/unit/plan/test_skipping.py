"""Tensors that skip over blocks: the cheapest plan that fits, against all plans walked through."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.plan.skip_walks import SKIP, WAYS, chosen_by, profiles, table, walked
from tests.unit.plan.test_profiled import block, cost, every_choice, planned

from haversack.errors import (
    DeadlineError,
    InternalError,
    InvalidRequestError,
    MissingExtraError,
)
from haversack.plan import PlanConstraints, PlanStatus, Rung
from haversack.profile import Profile, SkipKeeper, SkipTensor
from haversack_kernels.errors import SolveCancelled
from haversack_server.plan import profiled_beside, skipping
from haversack_server.plan.profiled_chain import chain_of, options_of
from haversack_server.plan.programme import Programme, Solved


@given(profiles(), st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_cheapest_plan_is_found_whoever_keeps_a_tensor(
    profile: Profile, draw: random.Random
) -> None:
    pytest.importorskip("ortools", reason="the extra graph")
    peaks = {each: walked(profile, each) for each in every_choice(profile)}
    floor = min(peaks.values())
    below = planned(floor - 1, profile)
    assert below.status is PlanStatus.INFEASIBLE
    assert below.floor_bytes == floor
    for budget_bytes in draw.choices(sorted(set(peaks.values())), k=4):
        answer = planned(budget_bytes, profile)
        least = min(cost(profile, each) for each, peak in peaks.items() if peak <= budget_bytes)
        assert answer.status is PlanStatus.OPTIMAL
        assert answer.extra_ns == least
        assert answer.predicted_peak_bytes == peaks[chosen_by(answer, profile)] <= budget_bytes
        options = by_programme(profile, budget_bytes)
        assert cost(profile, options) == least
        assert peaks[options] <= budget_bytes


def by_programme(profile: Profile, budget_bytes: int) -> tuple[int, ...]:
    """Solve without the bounds that a chain has, which often settle it before."""
    programme = programme_of(profile)
    programme.hold(budget_bytes)
    programme.least_extra(0, 10**9)
    found = programme.solved(10**10)
    assert found.proven
    assert found.options is not None
    return found.options


def programme_of(profile: Profile) -> Programme:
    chain = chain_of(profile, options_of(profile), moments_bytes=0, accumulation=1)
    alone = range(len(chain.names))
    return Programme(alone, chain.options, chain.tables(), chain.skips)


def joined(blocks: int) -> Profile:
    """Every block reads what all before it made, and keeps that only if it runs again."""
    tables = [table(20 + 15 * i, 0, 10 + 7 * i, extra_ns=(0, 9 + i, 4 + i)) for i in range(blocks)]
    return Profile(
        blocks=tuple(block(f"layers.{i}", i) for i in range(blocks)),
        tables=tuple(tables),
        skip_tensors=tuple(
            SkipTensor(
                size_bytes=SKIP,
                maker=maker,
                read_until=blocks - 1,
                keepers=tuple(
                    SkipKeeper(block=each, option=WAYS[1:]) for each in range(maker + 1, blocks)
                ),
            )
            for maker in range(blocks - 1)
        ),
    )


JOINED = joined(6)


def counted(profile: Profile) -> Profile:
    """The same with every tensor on its maker's account."""
    return replace(profile, skip_tensors=())


def test_dense_blocks_have_the_best_of_all_plans_where_the_chain_has_not() -> None:
    pytest.importorskip("ortools", reason="the extra graph")
    plans = [(walked(JOINED, each), cost(JOINED, each)) for each in every_choice(JOINED)]
    floor, gains = planned(1, JOINED).floor_bytes, 0
    assert floor == min(peak for peak, _ in plans)
    for budget_bytes in range(floor, floor + 400, 20):
        answer, chain = planned(budget_bytes, JOINED), planned(budget_bytes, counted(JOINED))
        assert answer.status is PlanStatus.OPTIMAL
        assert answer.extra_ns == min(extra for peak, extra in plans if peak <= budget_bytes)
        assert answer.predicted_peak_bytes is not None
        assert answer.predicted_peak_bytes <= budget_bytes
        if chain.status is PlanStatus.OPTIMAL:
            gains += answer.extra_ns < chain.extra_ns
    assert gains


def test_an_answer_names_the_rung_of_graphs_and_the_frontier_agrees() -> None:
    pytest.importorskip("ortools", reason="the extra graph")
    floor = planned(1, JOINED).floor_bytes
    answer = planned(floor + 200, JOINED, frontier_points=4)
    assert answer.rung is Rung.GRAPH
    assert answer.solver.startswith("tensors that skip over blocks")
    for point in answer.frontier:
        assert point.proven
        assert point.cost == planned(point.budget_bytes, JOINED).extra_ns
        assert point.peak_bytes <= point.budget_bytes


def test_bounded_work_gives_one_answer_with_its_gap() -> None:
    pytest.importorskip("ortools", reason="the extra graph")
    profile = joined(14)
    floor = planned(1, profile).floor_bytes
    budget_bytes = floor + 700
    first = planned(budget_bytes, profile, graph_ns=1)
    best, chain = planned(budget_bytes, profile), planned(budget_bytes, counted(profile))
    assert first.status is PlanStatus.FEASIBLE
    assert first.lower_bound <= best.extra_ns <= first.extra_ns <= chain.extra_ns
    assert planned(budget_bytes, profile, graph_ns=1).actions == first.actions


def test_a_programme_that_the_solver_does_not_take_is_a_fault_and_no_want_of_work() -> None:
    pytest.importorskip("ortools", reason="the extra graph")
    programme = programme_of(JOINED)
    programme.least_peak(0, 2**63 - 1)  # a variable of CP-SAT goes half as far
    with pytest.raises(InternalError, match=r"CP-SAT calls invalid: .*domain"):
        programme.solved(10**9)


def test_without_the_solver_the_chain_answers_with_its_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skipping, "is_there", lambda: False)
    chain_floor = planned(1, counted(JOINED)).floor_bytes
    answer = planned(chain_floor + 200, JOINED)
    chain = planned(chain_floor + 200, counted(JOINED))
    assert answer.status is PlanStatus.FEASIBLE
    assert answer.lower_bound < answer.extra_ns == chain.extra_ns
    assert any("haversack[server,graph]" in said for said in answer.assumptions)


TORN = Profile(
    blocks=tuple(block(f"layers.{i}", i) for i in range(3)),
    tables=(
        table(0, 0, 0),
        table(20, 0, 0),
        table(0, 0, 0, forward_peak_bytes=(500,) * 3, backward_peak_bytes=(500,) * 3),
    ),
    skip_tensors=(
        SkipTensor(
            size_bytes=SKIP,
            maker=0,
            read_until=1,
            keepers=(SkipKeeper(block=1, option=WAYS[1:]),),
        ),
    ),
)
"""The middle block retains least where it keeps the first one's tensor, which is more."""
HIGHEST = 3 * 8 + 2 * SKIP + 500


def test_the_floor_is_where_saving_frees_more_than_running_again() -> None:
    pytest.importorskip("ortools", reason="the extra graph")
    assert planned(1, counted(TORN)).floor_bytes == HIGHEST
    assert planned(1, TORN).floor_bytes == HIGHEST - SKIP + 20
    answer = planned(HIGHEST - SKIP + 20, TORN)
    assert [each.option for each in answer.actions] == ["save"] * 3
    assert answer.predicted_peak_bytes == HIGHEST - SKIP + 20


def test_a_budget_is_not_refused_where_the_floor_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skipping, "is_there", lambda: False)
    assert planned(HIGHEST - SKIP - 1, TORN).status is PlanStatus.INFEASIBLE
    with pytest.raises(MissingExtraError, match=r"haversack\[server,graph\]"):
        planned(HIGHEST - SKIP, TORN)
    monkeypatch.undo()
    pytest.importorskip("ortools", reason="the extra graph")
    nothing = Solved(None, 0, proven=False)
    monkeypatch.setattr(Programme, "solved", lambda *_: nothing)
    with pytest.raises(DeadlineError, match="graph_ns"):
        planned(HIGHEST - SKIP, TORN)


def test_equal_treatment_knows_who_keeps_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ortools", reason="the extra graph")
    blocks = tuple(replace(each, table=i % 2) for i, each in enumerate(JOINED.blocks))
    profile = replace(JOINED, blocks=blocks, tables=JOINED.tables[-2:])
    alike = PlanConstraints(equal_treatment=True)
    floor = planned(1, profile, constraints=alike).floor_bytes
    tried = [planned(floor + more, profile, constraints=alike) for more in (0, 90, 200)]
    monkeypatch.setattr(profiled_beside, "MOST_CHOICES", 1)
    solved = [planned(floor + more, profile, constraints=alike) for more in (0, 90, 200)]
    assert [each.extra_ns for each in solved] == [each.extra_ns for each in tried]
    assert [each.rung for each in solved] == [Rung.GRAPH] * 3
    peaks = [walked(profile, chosen_by(each, profile)) for each in solved]
    assert [each.predicted_peak_bytes for each in solved] == peaks


def test_a_solve_stops_with_its_call() -> None:
    pytest.importorskip("ortools", reason="the extra graph")
    programme = programme_of(JOINED)
    programme.least_peak(0, 10**6)
    with pytest.raises(SolveCancelled):
        programme.solved(10**9, np.ones(1, dtype=np.uint8))


@pytest.mark.parametrize(
    ("tensor", "field"),
    [
        (SkipTensor(size_bytes=1, maker=9, read_until=2), "maker"),
        (SkipTensor(size_bytes=1, maker=1, read_until=0), "read_until"),
        (SkipTensor(size_bytes=1, maker=1, read_until=2, kept_from=3), "kept_from"),
        (
            SkipTensor(size_bytes=1, maker=1, read_until=2, keepers=(SkipKeeper(block=4),)),
            "keepers[0].block",
        ),
        (SkipTensor(size_bytes=SKIP + 1, maker=0, read_until=2), "size_bytes"),
    ],
)
def test_a_tensor_that_cannot_be_is_refused(tensor: SkipTensor, field: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        replace(JOINED, skip_tensors=(tensor,))
    assert [each.field for each in refused.value.violations] == [f"profile.skip_tensors[0].{field}"]
