"""Every family of instances by every solver: the core, the dense DP, the textbook DP and HiGHS."""

from typing import Any

import numpy as np
import pytest
from tests.bench.instances import FAMILIES, Instance, make
from tests.oracles import knapsack_by_dense_dp

from haversack_kernels import dense, knapsack

every_family = pytest.mark.parametrize("family", FAMILIES)


def check(selection: knapsack.Selection, instance: Instance) -> None:
    """Hold the mask to the capacity and to the gain that was said."""
    assert instance.sizes[selection.mask].sum() <= instance.capacity
    assert instance.gains[selection.mask].sum() == selection.gain


@every_family
@pytest.mark.parametrize(("n", "capacity"), [(40, 500), (150, 10_000), (600, 20_000)])
def test_core_dense_and_textbook_agree(family: str, n: int, capacity: int) -> None:
    instance = make(family, n, capacity, seed=n)
    columns = instance.sizes, instance.gains, instance.capacity
    selection = knapsack.solve(*columns)
    check(selection, instance)
    assert selection.proven
    assert selection.gain == knapsack_by_dense_dp(*columns)
    assert selection.gain == dense.solve_one(*columns).gain


@every_family
def test_a_state_limit_gives_a_feasible_answer_between_its_bounds(family: str) -> None:
    instance = make(family, 300, 100_000)
    columns = instance.sizes, instance.gains, instance.capacity
    optimum = dense.solve_one(*columns).gain
    for state_limit in (0, 100, 3000, 30_000, 300_000):  # in every phase of the search
        selection = knapsack.solve(*columns, state_limit=state_limit)
        check(selection, instance)
        assert selection.gain <= optimum <= selection.upper_bound
        assert not selection.proven or selection.gain == optimum


@every_family
def test_in_bytes_of_80_gib_the_answer_is_feasible_between_its_bounds(family: str) -> None:
    instance = make(family, 200, 80 << 30)
    selection = knapsack.solve(*instance[1:], state_limit=1 << 17)
    check(selection, instance)
    coarse = dense.solve_one(*instance[1:], unit=(80 << 30) // 50_000)
    assert coarse.gain <= selection.upper_bound
    if selection.proven:
        assert coarse.gain <= selection.gain


@pytest.mark.slow
@every_family
@pytest.mark.parametrize("seed", range(4))
def test_core_dense_and_highs_agree(family: str, seed: int) -> None:
    instance = make(family, 60, 20_000, seed)
    best = gain_by_highs(instance)
    assert knapsack.solve(*instance[1:]).gain == best
    assert dense.solve_one(*instance[1:]).gain == best
    curve = dense.solve_all(*instance[1:])
    assert curve.gain(instance.capacity) == best
    assert (np.diff(curve.gains) >= 0).all()


@pytest.mark.slow
@every_family
@pytest.mark.parametrize(("n", "capacity", "seed"), [(200, 100_000, 1), (400, 200_000, 2)])
def test_core_dense_and_highs_agree_on_hundreds(
    family: str, n: int, capacity: int, seed: int
) -> None:
    """Of 400 candidates whose gains follow sizes HiGHS proves none; then its bounds are held to."""
    instance = make(family, n, capacity, seed)
    selection, found = knapsack.solve(*instance[1:]), solved_by_highs(instance, nodes=1500)
    check(selection, instance)
    assert selection.proven
    assert selection.gain == dense.solve_one(*instance[1:]).gain
    theirs = gain_of(instance, found)
    assert theirs == selection.gain or not found.success
    assert theirs <= selection.gain <= -found.mip_dual_bound + 0.5
    assert found.success or n == 400


def gain_by_highs(instance: Instance) -> int:
    found = solved_by_highs(instance)
    assert found.success
    return gain_of(instance, found)


def gain_of(instance: Instance, found: Any) -> int:
    return int(instance.gains[found.x > 0.5].sum())


def solved_by_highs(instance: Instance, nodes: int = 1 << 30) -> Any:
    optimize: Any = pytest.importorskip("scipy.optimize", reason="HiGHS comes with scipy")
    return optimize.milp(
        -instance.gains.astype(float),
        constraints=optimize.LinearConstraint(instance.sizes[np.newaxis], ub=instance.capacity),
        integrality=np.ones(instance.sizes.size),
        bounds=optimize.Bounds(0, 1),
        options={"mip_rel_gap": 0, "node_limit": nodes},
    )


@pytest.mark.slow
def test_real_values_rounded_up_are_never_over_budget() -> None:
    random = np.random.default_rng(0)
    for case in range(100_000):
        n = int(random.integers(1, 30))
        memory = random.random(n) ** 2 * 10.0 ** random.integers(-3, 6)
        budget, unit = memory.sum() * random.random(), memory.max() / random.integers(10, 10**6)
        sizes = np.ceil(memory / unit).astype(np.int64)
        gains = (random.random(n) * 1e6).astype(np.int64)
        selection = knapsack.solve(sizes, gains, int(budget / unit))
        assert memory[selection.mask].sum() <= budget, case
