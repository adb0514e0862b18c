"""What bounds leave to a dense DP after the core: never an optimum that is better than the best."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.bench.instances import FAMILIES, make
from tests.oracles import knapsack_by_dense_dp

from haversack_kernels import dense, knapsack
from haversack_kernels._jit import signals
from haversack_kernels.knapsack import Problem, Selection
from haversack_kernels.unsettled import Unsettled, left_by, with_choice

CANDIDATES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=14)


def after_a_look(problem: Problem, state_limit: int) -> tuple[Selection, Unsettled]:
    selection = knapsack.search(problem, state_limit, signals(None))
    return selection, left_by(problem, selection)


def completed(problem: Problem, selection: Selection, left: Unsettled) -> Selection:
    chosen = dense.solve_one(left.size, left.gain, left.capacity)
    return with_choice(problem, left, chosen.mask, selection)


@settings(max_examples=300, deadline=None)
@given(CANDIDATES, st.integers(0, 80), st.sampled_from([0, 8, 40, 200]))
@example([(2, 3), (3, 4), (3, 4), (5, 6)], 7, 0)
def test_the_better_of_the_best_and_a_choice_from_what_is_left_is_the_optimum(
    candidates: list[tuple[int, int]], capacity: int, state_limit: int
) -> None:
    sizes, gains = np.array(candidates, dtype=np.int64).T.copy()
    problem = knapsack.reduced(sizes, gains, capacity)
    if isinstance(problem, Selection):
        return
    selection, left = after_a_look(problem, state_limit)
    found = completed(problem, selection, left)
    assert found.gain == knapsack_by_dense_dp(sizes, gains, capacity)
    assert found.gain == gains[found.mask].sum()
    assert sizes[found.mask].sum() <= capacity


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("state_limit", [0, 1 << 10, 1 << 14])
def test_every_family_is_completed(family: str, state_limit: int) -> None:
    _, sizes, gains, capacity = make(family, 120, 4000)
    problem = knapsack.reduced(sizes, gains, capacity)
    assert isinstance(problem, Problem)
    selection, left = after_a_look(problem, state_limit)
    found = completed(problem, selection, left)
    assert found.gain == knapsack_by_dense_dp(sizes, gains, capacity)
    assert sizes[found.mask].sum() <= capacity
    assert left.capacity + left.base @ problem.size == problem.capacity


def test_the_best_settles_most_of_a_hard_instance() -> None:
    problem = knapsack.reduced(*make("multiple strongly", 1000, 100_000)[1:])
    assert isinstance(problem, Problem)
    selection, left = after_a_look(problem, 1 << 16)
    assert not selection.proven
    assert left.size.size < 250
    assert left.capacity < problem.capacity // 2


def test_gains_beyond_the_compiled_search_settle_nothing() -> None:
    sizes, gains = np.array([3, 3, 3, 4, 5]), 2**60 + np.array([0, 0, 0, 3, 9])
    problem = knapsack.reduced(sizes, gains, 11)
    assert isinstance(problem, Problem)
    assert not problem.narrow
    selection, left = after_a_look(problem, 0)
    assert sorted(left.size.tolist()) == [3, 3, 3, 4, 5]
    assert completed(problem, selection, left).gain == 3 * 2**60 + 9
