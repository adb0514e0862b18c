from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.bench.chains import blocks_of_eight, budget_between
from tests.unit.kernels.stopping import assert_stops_at_the_next_step

from haversack_kernels import ceiling, prices, sweep
from haversack_kernels._jit import Int64, signals
from haversack_kernels.errors import SolveCancelled


def column(*values: int) -> Int64:
    return np.array(values, dtype=np.int64)


# Two blocks, each with save (row 0, 2) and recompute (row 1, 3).
OFFSETS = column(0, 2, 4)
RETAINED = column(5, 1, 5, 1)
FORWARD = column(6, 4, 6, 4)
BACKWARD = column(7, 8, 7, 8)
EXTRA = column(0, 3, 0, 3)
NO_BASE = column(0, 0)


def solve(budget: int, **options: Any) -> ceiling.Choice:
    capacity = column(budget, budget)
    return ceiling.solve(OFFSETS, RETAINED, FORWARD, BACKWARD, EXTRA, capacity, capacity, **options)


def chain(blocks: int, jitter: int = 0) -> dict[str, Any]:
    """Blocks of three options each: save, a selective policy, recompute."""
    random = np.random.default_rng(blocks)

    def per_option(*values: int) -> Int64:
        return np.tile(column(*values), blocks) + random.integers(0, jitter + 1, 3 * blocks)

    return {
        "offsets": np.arange(blocks + 1, dtype=np.int64) * 3,
        "retained": per_option(1900, 800, 64),
        "forward_peak": per_option(1900, 1300, 900),
        "backward_peak": per_option(2500, 2500, 2500),
        "extra": per_option(0, 300, 900),
    }


def capacities(blocks: int, budget: int) -> dict[str, Any]:
    capacity = np.full(blocks, budget, dtype=np.int64)
    return {"forward_capacity": capacity, "backward_capacity": capacity}


@pytest.mark.parametrize(
    ("budget", "options", "extra"),
    [
        (12, [0, 2], 0),  # 5 retained + 7 at block 1's backward
        (11, [1, 2], 3),  # 1 + 7, and 8 at block 0's own backward
        (8, [1, 2], 3),
    ],
)
def test_the_cheapest_plan_within_the_ceilings_is_chosen(
    budget: int, options: list[int], extra: int
) -> None:
    choice = solve(budget)
    assert choice.options.tolist() == options
    assert (choice.extra, choice.lower_bound) == (extra, extra)
    assert choice.proven
    assert choice.feasible


def test_below_the_floor_nothing_is_feasible() -> None:
    floor = ceiling.floor(OFFSETS, RETAINED, FORWARD, BACKWARD, NO_BASE, NO_BASE)
    assert (floor.peak, floor.block, floor.backward) == (8, 1, True)
    assert solve(8).feasible
    below = solve(7)
    assert not below.feasible
    assert below.proven
    assert below.options.tolist() == [-1, -1]


def test_a_negative_capacity_forbids_and_a_huge_one_allows() -> None:
    assert not solve(-(2**62)).feasible
    assert solve(2**62).extra == 0


def test_forward_and_backward_have_capacities_of_their_own() -> None:
    choice = ceiling.solve(
        OFFSETS, RETAINED, FORWARD, BACKWARD, EXTRA, column(20, 8), column(20, 20)
    )
    assert choice.options.tolist() == [1, 2]  # 5 + 6 in block 1's forward are above 8


def test_of_equally_cheap_plans_the_one_that_retains_less_is_chosen() -> None:
    retained, zero = column(4, 2, 2, 4), column(0, 0, 0, 0)
    choice = ceiling.solve(OFFSETS, retained, zero, zero, zero, column(9, 9), column(9, 9))
    assert choice.options.tolist() == [1, 2]


def test_of_equal_options_the_lower_is_chosen() -> None:
    zero = column(0, 0, 0, 0)
    choice = ceiling.solve(OFFSETS, zero, zero, zero, zero, column(9, 9), column(9, 9))
    assert choice.options.tolist() == [0, 2]


def test_a_chain_without_blocks_costs_nothing() -> None:
    empty = column()
    choice = ceiling.solve(column(0), empty, empty, empty, empty, empty, empty)
    assert (choice.feasible, choice.extra, choice.options.size) == (True, 0, 0)
    with pytest.raises(ValueError, match="there is no block"):
        ceiling.floor(column(0), empty, empty, empty, empty, empty)


def test_the_peak_names_the_earliest_highest_moment() -> None:
    arguments = (OFFSETS, RETAINED, column(9, 4, 4, 4), column(9, 8, 4, 8))
    saved = ceiling.evaluate(*arguments, NO_BASE, NO_BASE, column(0, 2))
    assert saved == (9, 0, False)  # 9 also at the same block's backward, later
    recomputed = ceiling.evaluate(*arguments, NO_BASE, column(1, 0), column(1, 3))
    assert recomputed == (9, 1, True)  # 1 + 8; block 0's backward, 1 + 8 too, comes after


def test_a_state_limit_gives_a_feasible_plan_with_its_bound() -> None:
    many, within = chain(60, jitter=40), capacities(60, 40_000)
    exact = ceiling.solve(**many, **within)
    limited = ceiling.solve(**many, **within, state_limit=200)
    assert exact.proven
    assert not limited.proven
    assert limited.lower_bound <= exact.extra <= limited.extra
    assert limited.extra == many["extra"][limited.options].sum()


def test_equal_blocks_collapse_into_one_state_per_number_saved() -> None:
    blocks = 200
    offsets, twice = np.arange(blocks + 1, dtype=np.int64) * 2, 2 * blocks
    retained, extra = np.tile(column(5, 1), blocks), np.tile(column(0, 3), blocks)
    table = sweep.Table(offsets, retained, extra, np.full(twice, 10_000, dtype=np.int64))
    outlook = prices.outlook(table, np.zeros(blocks))
    found = sweep.sweep(table, outlook, 3 * blocks, 1 << 20, 1 << 20, signals(None))
    assert found.states == sum(2 * (block + 1) for block in range(blocks))
    assert found.left_out == sweep.NOTHING_LEFT_OUT


def test_a_flag_set_before_stops_before_the_first_block() -> None:
    cancel = np.ones(1, dtype=np.uint8)
    with pytest.raises(SolveCancelled) as stopped:
        solve(12, cancel=cancel)
    assert stopped.value.states == 0
    with pytest.raises(SolveCancelled):
        ceiling.floor(OFFSETS, RETAINED, FORWARD, BACKWARD, NO_BASE, NO_BASE, cancel=cancel)


def test_the_sweep_itself_reads_the_flag_before_its_first_block() -> None:
    table = sweep.Table(OFFSETS, RETAINED, EXTRA, column(9, 9, 9, 9))
    outlook = prices.outlook(table, np.zeros(2))
    found = sweep.sweep(table, outlook, 9, 9, 99, signals(np.ones(1, dtype=np.uint8)))
    assert (found.status, found.states) == (sweep.CANCELLED, 0)


def test_a_flag_set_while_solving_stops_before_the_next_list_step() -> None:
    blocks = 5000
    many, within = chain(blocks, jitter=40), capacities(blocks, 4_000_000)
    assert_stops_at_the_next_step(
        lambda cancel, steps: ceiling.solve(
            **many, **within, state_limit=1 << 31, cancel=cancel, steps=steps
        )
    )


def test_solves_side_by_side_give_what_they_give_alone() -> None:
    many = chain(60, jitter=40)
    budgets = [20_000 + 4000 * step for step in range(8)]

    def at(budget: int) -> ceiling.Choice:
        return ceiling.solve(**many, **capacities(60, budget))

    alone = [at(budget) for budget in budgets]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(at, budgets))
    for one, other in zip(alone, together, strict=True):
        assert one[1:] == other[1:]
        assert (one.options == other.options).all()


@pytest.mark.parametrize(
    ("in_flight", "peak", "options"),
    [
        (1, 8, [1, 2]),  # 8 at block 0's own backward; 1 + 7 at block 1's
        (2, 11, [1, 3]),  # 1 + 8 at block 1's backward, and 2 that another retains
        (3, 13, [1, 3]),
    ],
)
def test_what_is_retained_counts_for_every_microbatch_in_flight(
    in_flight: int, peak: int, options: list[int]
) -> None:
    columns = (OFFSETS, RETAINED, FORWARD, BACKWARD)
    floor = ceiling.floor(*columns, NO_BASE, NO_BASE, in_flight=in_flight)
    assert floor.peak == peak
    found = ceiling.evaluate(*columns, NO_BASE, NO_BASE, floor.options, in_flight=in_flight)
    assert found.peak == peak
    if in_flight > 1:
        assert solve(peak, in_flight=in_flight).options.tolist() == options
    assert not solve(peak - 1, in_flight=in_flight).feasible


def test_a_frontier_gives_each_budget_its_plan() -> None:
    budgets = [7, 8, 11, 12, 2**70]
    columns = (OFFSETS, RETAINED, FORWARD, BACKWARD, EXTRA, NO_BASE, NO_BASE)
    for state_limit in (1 << 20, 8):  # in one sweep, and one after the other
        found = ceiling.frontier(*columns, budgets, state_limit=state_limit)
        assert [choice.feasible for choice in found] == [False, True, True, True, True]
        assert [choice.extra for choice in found] == [0, 3, 3, 0, 0]
        assert all(choice.proven for choice in found)
    assert ceiling.frontier(*columns, []) == ()
    with pytest.raises(SolveCancelled):
        ceiling.frontier(*columns, budgets, cancel=np.ones(1, dtype=np.uint8))


@pytest.mark.parametrize(("blocks", "jitter"), [(400, 0.0), (200, 0.03)])
def test_a_frontier_of_a_long_chain_is_proven_whichever_way_it_goes(
    blocks: int, jitter: float
) -> None:
    columns, base = blocks_of_eight(blocks, jitter), np.zeros(blocks, dtype=np.int64)
    budgets = [budget_between(columns, share / 50) for share in range(1, 51)]
    choices = ceiling.frontier(*columns, base, base, budgets)
    assert all(choice.proven for choice in choices)
    for budget, choice in list(zip(budgets, choices, strict=True))[::10]:
        capacity = np.full(blocks, budget)
        assert ceiling.solve(*columns, capacity, capacity).extra == choice.extra


def test_no_microbatch_in_flight_is_refused() -> None:
    with pytest.raises(ValueError, match="in_flight is 0"):
        solve(9, in_flight=0)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"offsets": column(0, 3)}, ValueError, "number of options, 4"),
        ({"offsets": column(0, 0, 4)}, ValueError, "block 0 has no option"),
        ({"retained": column(5, -1, 5, 1)}, ValueError, "retained\\[1\\] is negative"),
        ({"extra": column(0, 3, 0, -3)}, ValueError, "extra\\[3\\] is negative"),
        ({"extra": column(0, 3, 0)}, ValueError, "extra has 3 values for 4 options"),
        ({"forward_peak": column(1)}, ValueError, "forward_peak has 1 values for 4 options"),
        ({"forward_capacity": column(1)}, ValueError, "forward_capacity has 1 values for 2"),
        ({"retained": column(2**61, 0, 1, 0)}, OverflowError, "retained sums up to"),
        (
            {"retained": column(2**60, 0, 1, 0), "in_flight": 2},
            OverflowError,
            "retained sums up to",
        ),
        ({"extra": column(2**62, 0, 2**62, 0)}, OverflowError, "extra sums up to"),
        ({"backward_peak": column(2**62, 0, 0, 0)}, OverflowError, "backward_peak reaches"),
        ({"extra": np.zeros(4)}, TypeError, "extra is not a one-dimensional int64 array"),
    ],
)
def test_bad_columns_are_refused_by_name(
    changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments: dict[str, Any] = {
        "offsets": OFFSETS,
        "retained": RETAINED,
        "forward_peak": FORWARD,
        "backward_peak": BACKWARD,
        "extra": EXTRA,
        "forward_capacity": column(9, 9),
        "backward_capacity": column(9, 9),
    }
    with pytest.raises(error, match=message):
        ceiling.solve(**{**arguments, **changed})


def test_an_option_of_another_block_is_refused() -> None:
    with pytest.raises(ValueError, match="options\\[1\\] is no option of its block"):
        ceiling.evaluate(OFFSETS, RETAINED, FORWARD, BACKWARD, NO_BASE, NO_BASE, column(0, 1))
