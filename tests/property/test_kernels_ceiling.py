"""The ceiling kernel against all plans of small chains."""

import numpy as np
import pytest
from tests.oracles import Chain, Plan, all_plans, allowed, ceiling_by_dense_dp

from haversack_kernels import ceiling, slots, sweep


def random_chain(seed: int) -> Chain:
    """Return one to six blocks of one to three options, with small or large numbers."""
    random = np.random.default_rng(seed)
    blocks = int(random.integers(1, 7))
    offsets = np.concatenate([[0], random.integers(1, 4, blocks).cumsum()])
    most, dear = int(random.choice([3, 12, 1000, 2**50])), int(random.choice([3, 50, 2**40]))
    retained, forward, backward = (random.integers(0, most, offsets[-1]) for _ in range(3))
    extra = random.integers(0, dear, offsets[-1])
    forward_base, backward_base = (random.integers(0, most, blocks) for _ in range(2))
    return Chain(offsets, retained, forward, backward, extra, forward_base, backward_base)


def solve(chain: Chain, budget: int, state_limit: int = 1 << 20) -> ceiling.Choice:
    forward, backward = budget - chain.forward_base, budget - chain.backward_base
    return ceiling.solve(*chain[:5], forward, backward, state_limit=state_limit)


def check(choice: ceiling.Choice, chain: Chain, plans: list[Plan], budget: int) -> None:
    """Hold the choice to the best of the plans within the budget."""
    within = [plan for plan in plans if plan.peak <= budget]
    assert choice.feasible == bool(within)
    if within:
        best = min((plan.extra, plan.retained) for plan in within)
        assert choice.proven
        assert choice.extra == choice.lower_bound == best[0]
        assert (choice.extra, chain.retained[choice.options].sum()) == best
        assert ceiling.evaluate(*chain[:4], *chain[5:], choice.options).peak <= budget


@pytest.mark.parametrize("seeds", [range(start, start + 50) for start in range(0, 400, 50)])
def test_it_equals_the_best_of_all_plans_at_every_budget(seeds: range) -> None:
    for chain in map(random_chain, seeds):
        plans = all_plans(chain)
        peaks = sorted({plan.peak for plan in plans})
        for budget in {peaks[0] - 1, *peaks[:: max(len(peaks) // 6, 1)], peaks[-1] + 1}:
            check(solve(chain, budget), chain, plans, budget)


@pytest.mark.parametrize("seed", range(100))
def test_the_floor_is_the_least_peak_and_divides_feasible_from_infeasible(seed: int) -> None:
    chain = random_chain(seed)
    floor = ceiling.floor(*chain[:4], *chain[5:])
    assert floor.peak == min(plan.peak for plan in all_plans(chain))
    assert ceiling.evaluate(*chain[:4], *chain[5:], floor.options) == floor[:3]
    assert solve(chain, floor.peak).feasible
    assert not solve(chain, floor.peak - 1).feasible


@pytest.mark.parametrize("seed", range(50))
def test_a_larger_budget_is_never_worse(seed: int) -> None:
    chain = random_chain(seed)
    floor = ceiling.floor(*chain[:4], *chain[5:])
    step = max(floor.peak // 10, 1)
    extras = [solve(chain, floor.peak + k * step).extra for k in range(20)]
    assert extras == sorted(extras, reverse=True)


@pytest.mark.parametrize("seed", range(100))
def test_a_limited_search_is_feasible_and_its_bound_holds(seed: int) -> None:
    chain = random_chain(seed)
    plans = all_plans(chain)
    budget = sorted(plan.peak for plan in plans)[len(plans) // 2]
    best = min(plan.extra for plan in plans if plan.peak <= budget)
    for state_limit in (0, 20, 40):
        choice = solve(chain, budget, state_limit)
        assert choice.feasible
        assert choice.lower_bound <= best <= choice.extra == chain.extra[choice.options].sum()
        assert not choice.proven or choice.extra == best
        assert ceiling.evaluate(*chain[:4], *chain[5:], choice.options).peak <= budget


def test_the_limited_searches_above_do_leave_states_out() -> None:
    def is_proven(seed: int) -> bool:
        chain = random_chain(seed)
        peaks = sorted(plan.peak for plan in all_plans(chain))
        return solve(chain, peaks[len(peaks) // 2], 0).proven

    assert not all(is_proven(seed) for seed in range(100))


def in_flight_peak(plan: Plan, in_flight: int) -> int:
    return plan.peak + (in_flight - 1) * plan.retained


@pytest.mark.parametrize("in_flight", range(1, 9))
def test_in_flight_it_equals_the_best_of_all_plans_at_every_budget(in_flight: int) -> None:
    for chain in map(random_chain, range(60)):
        plans = all_plans(chain)
        peaks = sorted({in_flight_peak(plan, in_flight) for plan in plans})
        floor = ceiling.floor(*chain[:4], *chain[5:], in_flight=in_flight)
        assert floor.peak == peaks[0]
        for budget in {peaks[0] - 1, *peaks[:: max(len(peaks) // 4, 1)]}:
            forward, backward = budget - chain.forward_base, budget - chain.backward_base
            choice = ceiling.solve(*chain[:5], forward, backward, in_flight=in_flight)
            within = [plan for plan in plans if in_flight_peak(plan, in_flight) <= budget]
            assert choice.feasible == bool(within)
            if within:
                assert choice.proven
                assert choice.extra == min(plan.extra for plan in within)
                peak = ceiling.evaluate(*chain[:4], *chain[5:], choice.options, in_flight=in_flight)
                assert peak.peak <= budget


@pytest.mark.parametrize("seed", range(60))
def test_a_limited_search_in_flight_is_feasible_and_its_bound_holds(seed: int) -> None:
    chain, in_flight = random_chain(seed), 2 + seed % 4
    plans = all_plans(chain)
    budget = sorted(in_flight_peak(plan, in_flight) for plan in plans)[len(plans) // 2]
    best = min(plan.extra for plan in plans if in_flight_peak(plan, in_flight) <= budget)
    forward, backward = budget - chain.forward_base, budget - chain.backward_base
    for state_limit in (0, 30, 100):
        choice = ceiling.solve(
            *chain[:5], forward, backward, in_flight=in_flight, state_limit=state_limit
        )
        assert choice.feasible
        assert choice.lower_bound <= best <= choice.extra == chain.extra[choice.options].sum()
        assert not choice.proven or choice.extra == best
        peak = ceiling.evaluate(*chain[:4], *chain[5:], choice.options, in_flight=in_flight)
        assert peak.peak <= budget


@pytest.mark.parametrize("seed", range(80))
def test_a_frontier_gives_every_budget_its_best_plan(seed: int) -> None:
    chain = random_chain(seed)
    plans = all_plans(chain)
    peaks = sorted({plan.peak for plan in plans})
    budgets = [peaks[-1] + 1, peaks[0] - 1, *peaks]
    for choice, budget in zip(ceiling.frontier(*chain, budgets), budgets, strict=True):
        within = [plan for plan in plans if plan.peak <= budget]
        assert choice.feasible == bool(within)
        if within:
            assert choice.proven
            assert choice.extra == choice.lower_bound == min(plan.extra for plan in within)
            assert choice.extra == chain.extra[choice.options].sum()
            assert ceiling.evaluate(*chain[:4], *chain[5:], choice.options).peak <= budget


@pytest.mark.parametrize("seed", range(40))
def test_a_limited_frontier_never_pays_more_for_a_larger_budget(seed: int) -> None:
    random = np.random.default_rng(seed)
    blocks = 30
    columns = [random.integers(0, most, 3 * blocks) for most in (900, 500, 700, 1000)]
    bases = [random.integers(0, 900, blocks) for _ in range(2)]
    chain = Chain(np.arange(blocks + 1) * 3, *columns, *bases)
    floor = ceiling.floor(*chain[:4], *bases).peak
    budgets = [floor + step * 1000 for step in range(10)]
    exact = ceiling.frontier(*chain, budgets)
    limited = ceiling.frontier(*chain, budgets, state_limit=2000)
    assert all(choice.proven for choice in exact)
    extras = [choice.extra for choice in limited]
    assert extras == sorted(extras, reverse=True)
    for best, choice, budget in zip(exact, limited, budgets, strict=True):
        assert choice.lower_bound <= best.extra <= choice.extra
        assert ceiling.evaluate(*chain[:4], *chain[5:], choice.options).peak <= budget
        assert solve(chain, budget).extra == best.extra


@pytest.mark.parametrize("seed", range(50))
def test_capacities_of_any_shape_equal_the_best_allowed_plan(seed: int) -> None:
    chain, random = random_chain(seed), np.random.default_rng(seed)
    most, blocks = 3 * int(chain.forward_peak.max()) + 1, chain.offsets.size - 1
    forward, backward = (random.integers(-1, most, blocks) for _ in range(2))
    plans = [plan for plan in all_plans(chain) if allowed(chain, plan, forward, backward)]
    choice = ceiling.solve(*chain[:5], forward, backward)
    assert choice.feasible == bool(plans)
    if plans:
        assert choice.extra == min(plan.extra for plan in plans)


@pytest.mark.parametrize("seed", range(40))
def test_long_chains_equal_a_table_over_every_retained_byte(seed: int) -> None:
    random = np.random.default_rng(seed)
    blocks, options = 60, 4
    columns = (random.integers(0, most, blocks * options) for most in (40, 30, 30, 1000))
    retained, forward, backward, extra = columns
    offsets = np.arange(blocks + 1) * options
    capacity = np.full(blocks, int(blocks * 16 * random.random()))
    choice = ceiling.solve(offsets, retained, forward, backward, extra, capacity, capacity)
    ceilings = capacity[0] - np.maximum(forward, backward)
    least = ceiling_by_dense_dp(offsets, retained, extra, ceilings, 40 * blocks)
    assert choice.proven
    assert (choice.extra if choice.feasible else -1) == least


@pytest.mark.parametrize("seed", range(60))
def test_slots_of_a_byte_give_the_same_plan(seed: int) -> None:
    random = np.random.default_rng(seed)
    blocks, options = int(random.integers(1, 60)), 4
    dear = 20 if seed % 2 else 2**40  # cells of 32 and of 64 bits
    columns = [random.integers(0, most, blocks * options) for most in (40, 60, 60, dear)]
    bases = [random.integers(0, 50, blocks) for _ in range(2)]
    chain = Chain(np.arange(blocks + 1) * options, *columns, *bases)
    largest = 60 + 20 * blocks
    curve = slots.solve_all(*chain, largest, slots=1 << 20)
    assert curve.unit == 1
    for budget in (largest, largest // 2, largest // 3, 70, 0, -1):
        choice = solve(chain, budget)
        found = slots.solve_one(table_of(chain, budget), slots=1 << 20)
        assert (found is not None) == choice.feasible == (curve.extra(budget) is not None)
        if found is not None:
            assert (found[0].tolist(), found[1]) == (choice.options.tolist(), choice.extra)
            assert curve.extra(budget) == choice.extra
            options_of_curve = curve.options(budget)
            assert chain.extra[options_of_curve].sum() == choice.extra
            assert ceiling.evaluate(*chain[:4], *chain[5:], options_of_curve).peak <= budget


def table_of(chain: Chain, budget: int) -> sweep.Table:
    counts = np.diff(chain.offsets)
    forward = budget - np.repeat(chain.forward_base, counts) - chain.forward_peak
    backward = budget - np.repeat(chain.backward_base, counts) - chain.backward_peak
    return sweep.Table(chain.offsets, chain.retained, chain.extra, np.minimum(forward, backward))


@pytest.mark.parametrize("seed", range(40))
def test_coarse_slots_give_plans_within_the_budget(seed: int) -> None:
    random = np.random.default_rng(seed)
    blocks, options = 40, 3
    columns = [random.integers(0, 2**30, blocks * options) for _ in range(4)]
    bases = [random.integers(0, 2**30, blocks) for _ in range(2)]
    chain = Chain(np.arange(blocks + 1) * options, *columns, *bases)
    floor = ceiling.floor(*chain[:4], *bases).peak
    curve = slots.solve_all(*chain, 2 * floor, slots=5000)
    for budget in (floor, floor * 5 // 4, 2 * floor):
        found, best = slots.solve_one(table_of(chain, budget), slots=5000), solve(chain, budget)
        plans = [curve.options(budget)] if curve.extra(budget) is not None else []
        plans += [found[0]] if found else []
        for plan in plans:
            assert best.lower_bound <= chain.extra[plan].sum()
            assert ceiling.evaluate(*chain[:4], *chain[5:], plan).peak <= budget
    assert curve.extra(2 * floor) is not None
    assert curve.extra(floor - 1) is None


@pytest.mark.parametrize("seed", range(50))
def test_sums_up_to_the_largest_allowed_are_exact(seed: int) -> None:
    chain = random_chain(seed)
    bytes_columns = chain.retained, chain.forward_peak, chain.backward_peak, *chain[5:]
    factor = 2**61 // (max(int(values.sum()) for values in bytes_columns) + 1)
    retained, forward, backward, *bases = (values * factor for values in bytes_columns)
    dear = 2**62 // (int(chain.extra.sum()) + 1)
    large = Chain(
        chain.offsets, retained, forward, backward, chain.extra * dear, bases[0], bases[1]
    )
    plans = all_plans(large)
    middle = sorted(plan.peak for plan in plans)[len(plans) // 2]
    for budget in (middle - 1, middle, middle + 1):
        check(solve(large, budget), large, plans, budget)
