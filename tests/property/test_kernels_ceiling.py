"""The ceiling kernel against all plans of small chains."""

import numpy as np
import pytest
from tests.oracles import Chain, Plan, all_plans, allowed, ceiling_by_dense_dp

from haversack_kernels import ceiling


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
