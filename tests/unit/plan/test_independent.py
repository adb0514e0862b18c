"""Independent candidates and the mirror form, against enumeration and by hand."""

from itertools import combinations

import pytest

from haversack.errors import InvalidRequestError
from haversack.plan import Candidates, Plan, PlanRequest, PlanStatus, RecomputeCandidates, Rung
from haversack.run import Budget, BytesKind
from haversack.units import GIB, INT64_MAX
from haversack_server.plan.answer import plan


def saved(sizes: tuple[int, ...], gains: tuple[int, ...], budget: int, fixed: int = 0) -> Plan:
    columns = Candidates(size_bytes=sizes, gain=gains, fixed_bytes=fixed)
    return plan(PlanRequest(candidates=columns, budget=Budget(bytes=budget)))


@pytest.mark.parametrize(
    ("sizes", "gains", "budget", "gain", "chosen"),
    [
        ((3, 2, 2), (5, 3, 3), 4, 6, (1, 2)),
        ((2,), (3,), 4, 3, (0,)),
        ((1,), (2,), 0, 0, ()),
        ((), (), 3, 0, ()),
        ((2, 3), (4, 5), 5, 9, (0, 1)),
        ((1, 1), (INT64_MAX, 1), 1, INT64_MAX, (0,)),
        ((INT64_MAX, INT64_MAX, 5), (3, 2, 1), INT64_MAX, 3, (0,)),
        ((1_000_000, 2), (7, 1), 1_000_001, 7, (0,)),
        ((50 * GIB, 40 * GIB, 30 * GIB), (6, 4, 3), 80 * GIB, 9, (0, 2)),
    ],
)
def test_known_answers(
    sizes: tuple[int, ...], gains: tuple[int, ...], budget: int, gain: int, chosen: tuple[int, ...]
) -> None:
    answer = saved(sizes, gains, budget)
    assert answer.status is PlanStatus.OPTIMAL
    assert answer.rung is Rung.INDEPENDENT
    assert (answer.total_gain, answer.saved) == (gain, chosen)
    assert answer.total_size_bytes == sum(sizes[index] for index in chosen)
    assert answer.predicted_peak_bytes is None


def test_the_headline_names_what_is_fixed_beside_what_is_saved() -> None:
    assert saved((3, 2, 2), (5, 3, 3), 4).reason == "2 of 3 are saved, 4 B of 4 B"
    fixed = saved((3, 2, 2), (5, 3, 3), 6, fixed=2).reason
    assert fixed == (
        "2 of 3 are saved, 4 B of 4 B, beside 2 B that are fixed under the budget of 6 B"
    )


def test_an_optimum_above_int64_is_an_error_and_only_then() -> None:
    with pytest.raises(InvalidRequestError, match=r"candidates\.gain.*2\^63-1"):
        saved((1, 1), (INT64_MAX, 1), 2)
    nothing = saved((1, 1), (INT64_MAX, 1), 0)
    assert nothing.total_gain == 0
    assert nothing.extra_ns == INT64_MAX
    assert "cut at 2^63-1" in nothing.assumptions[0]


def test_fixed_bytes_count_against_the_budget_and_are_its_floor() -> None:
    assert saved((3, 2, 2), (5, 3, 3), 14, fixed=10).saved == (1, 2)
    short = saved((3, 2, 2), (5, 3, 3), 9, fixed=10)
    assert short.status is PlanStatus.INFEASIBLE
    assert short.floor_bytes == 10
    assert short.relief


def test_a_state_limit_gives_a_feasible_plan_with_its_gap() -> None:
    # Strongly correlated: gain = size + 100, so bounds prune little.
    sizes = tuple(10_007 * index % 9_973 + 1 for index in range(1, 200))
    gains = tuple(size + 100 for size in sizes)
    request = PlanRequest(
        candidates=Candidates(size_bytes=sizes, gain=gains),
        budget=Budget(bytes=sum(sizes) // 2),
        state_limit=50,
        frontier_points=0,
    )
    answer = plan(request)
    exact = saved(sizes, gains, sum(sizes) // 2)
    assert answer.total_size_bytes <= sum(sizes) // 2
    assert answer.total_gain <= exact.total_gain <= answer.total_gain + answer.gap
    assert answer.status is (PlanStatus.OPTIMAL if answer.gap == 0 else PlanStatus.FEASIBLE)
    assert answer.lower_bound == answer.extra_ns - answer.gap


FREED = (400, 300, 250, 100)
ADDED = (9, 5, 5, 1)


def recomputed(budget: int) -> Plan:
    columns = RecomputeCandidates(freed_bytes=FREED, added_ns=ADDED, used_bytes=1_500)
    return plan(PlanRequest(recompute_candidates=columns, budget=Budget(bytes=budget)))


@pytest.mark.parametrize("budget", range(450, 1_601, 50))
def test_the_mirror_form_frees_enough_at_the_least_added_time(budget: int) -> None:
    places = range(len(FREED))
    subsets = [chosen for count in range(len(FREED) + 1) for chosen in combinations(places, count)]
    enough = [
        sum(ADDED[place] for place in chosen)
        for chosen in subsets
        if 1_500 - sum(FREED[place] for place in chosen) <= budget
    ]
    answer = recomputed(budget)
    assert answer.status is PlanStatus.OPTIMAL
    assert answer.extra_ns == min(enough)
    assert sum(ADDED[place] for place in places if place not in answer.saved) == answer.extra_ns


def test_the_mirror_form_is_infeasible_below_what_cannot_be_freed() -> None:
    answer = recomputed(449)
    assert answer.status is PlanStatus.INFEASIBLE
    places = range(len(FREED))
    left = [
        1_500 - sum(FREED[place] for place in chosen)
        for count in range(len(FREED) + 1)
        for chosen in combinations(places, count)
    ]
    assert answer.floor_bytes == min(left) == 450


def test_the_mirror_form_says_what_it_took_for_used() -> None:
    columns = RecomputeCandidates(freed_bytes=FREED, added_ns=ADDED)
    answer = plan(PlanRequest(recompute_candidates=columns, budget=Budget(bytes=1_000)))
    assert any(each.startswith("used_bytes: the sum") for each in answer.assumptions)
    assert not any(each.startswith("used_bytes") for each in recomputed(1_000).assumptions)


def test_device_bytes_are_refused_without_a_model_to_convert_them() -> None:
    columns = Candidates(size_bytes=(1,), gain=(1,))
    with pytest.raises(InvalidRequestError, match=r"budget\.kind"):
        PlanRequest(candidates=columns, budget=Budget(bytes=1, kind=BytesKind.DEVICE))


def test_the_frontier_rises_in_budget_and_falls_in_cost() -> None:
    frontier = saved((3, 2, 2), (5, 3, 3), 4).frontier
    budgets = [point.budget_bytes for point in frontier]
    costs = [point.cost for point in frontier]
    assert budgets == sorted(budgets)
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 0


@pytest.mark.parametrize("fixed_bytes", [0, 1, INT64_MAX])
def test_the_frontier_ends_at_the_largest_budget_that_can_be_named(fixed_bytes: int) -> None:
    columns = Candidates(size_bytes=(INT64_MAX,) * 3, gain=(1, 2, 3), fixed_bytes=fixed_bytes)
    found = plan(PlanRequest(candidates=columns, budget=Budget(bytes=INT64_MAX)))
    assert found.saved == (() if fixed_bytes else (2,))
    assert found.frontier[-1].budget_bytes == INT64_MAX
