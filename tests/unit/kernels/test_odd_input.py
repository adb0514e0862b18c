"""Arguments that are nearly right: refused by name, or taken for what they are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from haversack_kernels import ceiling, dense, dispatch, knapsack, segments, slots
from haversack_kernels.columns import checked as columns_of
from haversack_kernels.errors import SolveCancelled

SIZES = np.arange(1, 60)
GAINS = 2 * SIZES + 3
OFFSETS = np.arange(6) * 2
RETAINED = np.arange(10) % 2 * 5
PEAK = np.full(10, 3)
BASE = np.zeros(5, dtype=np.int64)
CAPACITY = np.full(5, 20)
CHAIN = segments.Chain(
    offsets=OFFSETS,
    retained=RETAINED,
    forward_peak=PEAK,
    backward_peak=PEAK,
    extra=10 - RETAINED,
    inside=np.ones(10, dtype=np.bool_),
    plain_peak=np.full(5, 3),
    plain_time=np.full(5, 4),
    boundary=np.full(5, 2),
    gathered=BASE,
    forward_base=BASE,
    backward_base=BASE,
)

KNAPSACKS: dict[str, Callable[..., Any]] = {
    "core": knapsack.solve,
    "dense": dense.solve_one,
    "all": dense.solve_all,
    "dispatch": dispatch.solve_knapsack,
    "explain": dispatch.explain_knapsack,
}


def in_ceilings(**changed: Any) -> ceiling.Choice:
    columns = OFFSETS, RETAINED, PEAK, PEAK, 10 - RETAINED, CAPACITY, CAPACITY
    return dispatch.solve_ceiling(*columns, **changed)[0]


def on_the_frontier(budget: Any, **changed: Any) -> ceiling.Choice:
    columns = OFFSETS, RETAINED, PEAK, PEAK, 10 - RETAINED, BASE, BASE
    return ceiling.frontier(*columns, [budget], **changed)[0]


def in_slots(budget: Any = 20, **changed: Any) -> int | None:
    columns = OFFSETS, RETAINED, PEAK, PEAK, 10 - RETAINED, BASE, BASE
    return slots.solve_all(*columns, budget, **changed).extra(20)


@pytest.mark.parametrize("capacity", [300.0, float("nan"), float("inf"), None, "300"])
@pytest.mark.parametrize("way", KNAPSACKS)
def test_a_capacity_that_is_no_integer_is_refused(way: str, capacity: Any) -> None:
    with pytest.raises(TypeError, match=r"^capacity is .*, not an integer$"):
        KNAPSACKS[way](SIZES, GAINS, capacity)


@pytest.mark.parametrize("of_type", [np.int32, np.int64, np.uint8, np.uint64])
def test_integers_of_numpy_are_integers(of_type: Any) -> None:
    gains = {KNAPSACKS[way](SIZES, GAINS, of_type(100)).gain for way in ("core", "dense")}
    assert gains == {dense.solve_one(SIZES, GAINS, 100).gain}
    assert dense.solve_all(SIZES, GAINS, 100).gain(of_type(100)) in gains
    assert in_ceilings(in_flight=of_type(2), state_limit=of_type(100)).extra == 40
    assert in_slots(of_type(20), slots=of_type(64)) == 30


@pytest.mark.parametrize("odd", [1.5, 1e3, None, "5"])
def test_other_numbers_that_are_no_integers_are_refused_by_name(odd: Any) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "state_limit": lambda: knapsack.solve(SIZES, GAINS, 300, state_limit=odd),
        "unit": lambda: dense.solve_one(SIZES, GAINS, 300, unit=odd),
        "in_flight": lambda: in_ceilings(in_flight=odd),
        "state_limit ": lambda: in_ceilings(state_limit=odd),
        "budgets": lambda: on_the_frontier(odd),
        "state_limit  ": lambda: on_the_frontier(20, state_limit=odd),
        "slots": lambda: in_slots(slots=odd),
        "budget": lambda: in_slots(odd),
        "budget ": lambda: segments.solve(CHAIN, odd, unit=1),
        "unit ": lambda: segments.lower_bound(CHAIN, 60, unit=odd),
        "unit  ": lambda: segments.floor(CHAIN, unit=odd),
        "capacity": lambda: dense.solve_all(SIZES, GAINS, 300).gain(odd),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=rf"^{name.strip()} is .*, not an integer$"):
            call()


@pytest.mark.parametrize("unit", [0, -1, 2**60])
def test_a_unit_of_segments_is_checked_wherever_it_is_given(unit: int) -> None:
    for call in (segments.solve, segments.lower_bound, segments.frontier):
        with pytest.raises(ValueError, match="unit is"):
            call(CHAIN, 60, unit=unit)


def test_sizes_that_sum_beyond_int64_are_dispatched() -> None:
    most = 2**63 - 1
    sizes, gains = np.array([most, most, 5]), np.array([3, 2, 1])
    selection, why = dispatch.solve_knapsack(sizes, gains, most)
    assert (selection.gain, selection.proven, why.algorithm) == (3, True, "core")
    assert dispatch.explain_knapsack(sizes, gains, most).algorithm == "core"


@pytest.mark.parametrize("capacity", [0, 300, 10**6])
def test_a_flag_that_is_set_before_stops_even_what_needs_no_search(capacity: int) -> None:
    stop = np.ones(1, dtype=np.uint8)
    for solve in (knapsack.solve, dense.solve_one, dispatch.solve_knapsack):
        with pytest.raises(SolveCancelled):
            solve(SIZES, GAINS, capacity, cancel=stop)


def test_few_slots_are_enough_or_refused() -> None:
    columns = columns_of(OFFSETS, RETAINED, PEAK, PEAK)
    table = ceiling.table(columns, 10 - RETAINED, CAPACITY, CAPACITY, 1)
    with pytest.raises(ValueError, match="5 blocks in 1 slots: give a block and 2 or more slots"):
        slots.solve_one(table, slots=1)
    plan = slots.solve_one(table, slots=2)
    assert plan is not None
    assert plan[1] == 45
    assert in_slots(slots=1) == 45


def test_a_budget_of_slots_beyond_all_bytes_is_refused() -> None:
    with pytest.raises(OverflowError, match="above 2\\^62 bytes"):
        in_slots(10**30)
