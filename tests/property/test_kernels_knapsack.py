"""The knapsack kernel against enumeration and the textbook DP."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import knapsack_by_dense_dp, knapsack_by_enumeration

from haversack_kernels import knapsack
from haversack_kernels._jit import Int64

MAX = 2**63 - 1
EDGES = (2**31, 2**53, 2**62, MAX)


def solve(sizes: list[int], gains: list[int], capacity: int) -> knapsack.Selection:
    columns = np.array(sizes, dtype=np.int64), np.array(gains, dtype=np.int64)
    selection = knapsack.solve(*columns, capacity)
    check(selection, sizes, gains, capacity)
    return selection


def check(selection: knapsack.Selection, sizes: list[int], gains: list[int], capacity: int) -> None:
    """Hold the mask to the capacity and to the gain that was said, in Python integers."""
    assert selection.mask.shape == (len(sizes),)
    chosen = np.flatnonzero(selection.mask)
    assert sum(sizes[i] for i in chosen) <= capacity
    assert sum(gains[i] for i in chosen) == selection.gain <= selection.upper_bound


numbers = st.one_of(
    st.integers(0, 12),
    st.integers(0, 10**6),
    st.sampled_from(EDGES).flatmap(lambda edge: st.integers(edge - 3, min(edge + 3, MAX))),
    st.integers(0, MAX),
)


@st.composite
def instances(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Draw sizes, gains and a capacity at or next to a subset's size, or any."""
    candidates = draw(st.lists(st.tuples(numbers, numbers), max_size=8))
    sizes, gains = [size for size, _ in candidates], [gain for _, gain in candidates]
    subset = sum(size for size in sizes if draw(st.booleans()))
    near = st.integers(max(subset - 1, 0), subset + 1)
    return sizes, gains, min(draw(st.one_of(near, numbers)), 2**62)


@settings(max_examples=400, deadline=None)
@given(instances())
def test_it_equals_enumeration_or_the_optimum_exceeds_int64(
    instance: tuple[list[int], list[int], int],
) -> None:
    sizes, gains, capacity = instance
    optimum = knapsack_by_enumeration(sizes, gains, capacity)
    if optimum > MAX:
        with pytest.raises(OverflowError):
            solve(sizes, gains, capacity)
    else:
        selection = solve(sizes, gains, capacity)
        assert selection.proven
        assert selection.gain == selection.upper_bound == optimum


@settings(max_examples=100, deadline=None)
@given(instances(), st.integers(0, 40))
def test_a_limited_search_is_feasible_and_its_bound_holds(
    instance: tuple[list[int], list[int], int], state_limit: int
) -> None:
    sizes, gains, capacity = instance
    optimum = knapsack_by_enumeration(sizes, gains, capacity)
    columns = np.array(sizes, dtype=np.int64), np.array(gains, dtype=np.int64)
    if optimum > MAX:
        return  # unnoticed or an error: both are allowed past the limit
    selection = knapsack.solve(*columns, capacity, state_limit=state_limit)
    check(selection, sizes, gains, capacity)
    assert selection.gain <= optimum <= selection.upper_bound
    assert not selection.proven or selection.gain == optimum


def random_instance(seed: int) -> tuple[Int64, Int64, int]:
    """Return a small instance of one of six families, by turns."""
    random = np.random.default_rng(seed)
    n, most = int(random.integers(10, 19)), int(random.choice([10, 100, 10**9, 2**53, 2**58]))
    sizes = random.integers(1, most, n)
    gains = (
        random.integers(1, most, n),  # uncorrelated
        sizes + most // 10,  # strongly correlated
        sizes.copy(),  # subset-sum
        np.maximum(sizes - most // 10, 1),  # inversely
        sizes + random.integers(0, 3, n),  # almost
        np.repeat(random.integers(1, most, 3), n)[:n],  # few kinds
    )[seed % 6]
    return sizes, gains, int(sizes.sum() * random.random())


@pytest.mark.parametrize("seed", range(60))
def test_every_family_equals_enumeration(seed: int) -> None:
    sizes, gains, capacity = random_instance(seed)
    selection = solve(sizes.tolist(), gains.tolist(), capacity)
    assert selection.proven
    assert selection.gain == knapsack_by_enumeration(sizes.tolist(), gains.tolist(), capacity)


@pytest.mark.parametrize("seed", range(30))
def test_hundreds_of_candidates_equal_the_textbook_dp(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(100, 400))
    kinds = random.integers(0, 20 if seed % 2 else n, n)  # repeated layers, or all different
    sizes, gains = random.integers(1, 300, n)[kinds], random.integers(1, 5000, n)[kinds]
    capacity = int(sizes.sum() * random.random())
    selection = solve(sizes.tolist(), gains.tolist(), capacity)
    assert selection.proven
    assert selection.gain == knapsack_by_dense_dp(sizes, gains, capacity)


def test_the_enumeration_and_the_textbook_dp_agree() -> None:
    sizes, gains = [3, 2, 2, 5], [5, 3, 3, 7]
    for capacity in range(13):
        dense = knapsack_by_dense_dp(np.array(sizes), np.array(gains), capacity)
        assert dense == knapsack_by_enumeration(sizes, gains, capacity)
