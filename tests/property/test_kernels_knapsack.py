"""The knapsack kernel against enumeration and the textbook DP."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles import knapsack_by_dense_dp, knapsack_by_enumeration

from haversack_kernels import knapsack, phases, runs, wide
from haversack_kernels._exact import at_least
from haversack_kernels._jit import Int64, jit, signals

MAX = 2**63 - 1
EDGES = (2**31, 2**53, 2**62, MAX)


def solve(sizes: list[int], gains: list[int], capacity: int) -> knapsack.Selection:
    selection = knapsack.solve(*columns(sizes, gains), capacity)
    check(selection, sizes, gains, capacity)
    return selection


def check(selection: knapsack.Selection, sizes: list[int], gains: list[int], capacity: int) -> None:
    """Hold the mask to the capacity and to the gain that was said, in Python integers."""
    assert selection.mask.shape == (len(sizes),)
    chosen = np.flatnonzero(selection.mask)
    assert sum(sizes[i] for i in chosen) <= capacity
    assert sum(gains[i] for i in chosen) == selection.gain <= selection.upper_bound


small = st.one_of(  # sums stay within 2^62, so that the search is the one in int64
    st.integers(0, 12),
    st.integers(0, 10**6),
    st.sampled_from((2**31, 2**53, 2**58)).flatmap(lambda edge: st.integers(edge - 3, edge + 3)),
)
numbers = st.one_of(
    st.integers(0, 12),
    st.integers(0, 10**6),
    st.sampled_from(EDGES).flatmap(lambda edge: st.integers(edge - 3, min(edge + 3, MAX))),
    st.integers(0, MAX),
)


@st.composite
def instances(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Draw sizes, gains and a capacity at or next to a subset's size, or any."""
    gain = draw(st.sampled_from([small, numbers]))
    candidates = draw(st.lists(st.tuples(numbers, gain), max_size=8))
    sizes, gains = [size for size, _ in candidates], [gain for _, gain in candidates]
    subset = sum(size for size in sizes if draw(st.booleans()))
    near = st.integers(max(subset - 1, 0), subset + 1)
    return sizes, gains, draw(st.one_of(near, numbers))


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
    if optimum > MAX:
        return  # unnoticed or an error: both are allowed past the limit
    selection = knapsack.solve(*columns(sizes, gains), capacity, state_limit=state_limit)
    check(selection, sizes, gains, capacity)
    assert selection.gain <= optimum <= selection.upper_bound
    assert not selection.proven or selection.gain == optimum


@settings(max_examples=200, deadline=None)
@given(instances())
def test_the_search_in_python_integers_agrees_with_the_compiled_one(
    instance: tuple[list[int], list[int], int],
) -> None:
    sizes, gains, capacity = instance
    found = runs.reduce(*columns(sizes, gains), min(capacity, MAX), runs.new_seed())
    if runs.whole(found.sums, 0) <= capacity:
        return  # there is nothing to search
    if runs.whole(found.sums, 1) > 2**62 or capacity >= 2**62:
        return  # the compiled search is not for these
    order = np.argsort(-found.gain / found.size, kind="stable")
    runs.order_exactly(order, found.gain, found.size, found.gain / found.size, found.size)
    chosen = found.size[order], found.gain[order], found.copies[order]
    arguments = (*chosen, capacity // found.size_unit, 1 << 20, signals(None))
    assert phases.search(*arguments).gain == wide.search(*arguments).gain


numerators = st.one_of(st.integers(-MAX - 1, MAX), st.integers(-3, 3))


@settings(max_examples=300, deadline=None)
@given(numerators, numerators, numerators, numerators)
def test_products_are_compared_beyond_int64(a: int, b: int, c: int, d: int) -> None:
    assert is_at_least(a, b, c, d) == (a * b >= c * d)


@jit
def is_at_least(a: int, b: int, c: int, d: int) -> bool:
    return at_least(a, b, c, d)


@pytest.mark.parametrize("bits", [20, 53, 61])
def test_candidates_are_ordered_as_by_exact_fractions(bits: int) -> None:
    random = np.random.default_rng(bits)
    size = random.integers(1 << (bits - 1), 1 << bits, 300)
    gain = size + random.integers(0, 4, 300)  # densities that floats can hardly tell apart
    size[:60], gain[:60] = size[60:120], gain[60:120]
    order = np.argsort(-gain / size)
    runs.order_exactly(order, gain, size, gain / size, np.arange(300))
    exact = sorted(range(300), key=lambda i: (-Fraction(int(gain[i]), int(size[i])), i))
    assert order.tolist() == exact


def test_equal_candidates_are_one_run_in_the_order_of_the_first() -> None:
    sizes, gains = columns([6, 4, 6, 0, 4, 9, 6, 99], [3, 6, 3, 5, 9, 0, 3, 7])
    found = runs.reduce(sizes, gains, 10, runs.new_seed())
    assert found.of.tolist() == [0, 1, 0, runs.FREE, 2, runs.USELESS, 0, runs.USELESS]
    assert (found.size_unit, found.gain_unit) == (2, 3)
    assert found.size.tolist() == [3, 2, 2]
    assert found.gain.tolist() == [1, 2, 3]
    assert found.copies.tolist() == [3, 1, 1]
    assert [runs.whole(found.sums, which) for which in range(3)] == [26, 29, 5]
    mask = runs.mask(found.of, np.array([2, 0, 1]))
    assert mask.tolist() == [True, False, True, True, True, False, False, False]


def columns(sizes: list[int], gains: list[int]) -> tuple[Int64, Int64]:
    return np.array(sizes, dtype=np.int64), np.array(gains, dtype=np.int64)


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
