import subprocess
import sys
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from haversack_kernels import core, knapsack
from haversack_kernels._jit import Int64
from haversack_kernels.errors import SolveCancelled

MAX = 2**63 - 1


def solve(sizes: list[int], gains: list[int], capacity: int, **options: Any) -> knapsack.Selection:
    return knapsack.solve(
        np.array(sizes, dtype=np.int64), np.array(gains, dtype=np.int64), capacity, **options
    )


def saved(selection: knapsack.Selection) -> list[int]:
    return [int(i) for i in np.flatnonzero(selection.mask)]


@pytest.mark.parametrize(
    ("sizes", "gains", "capacity", "gain", "chosen"),
    [
        ([3, 2, 2], [5, 3, 3], 4, 6, [1, 2]),
        ([2], [3], 4, 3, [0]),
        ([1], [2], 0, 0, []),
        ([], [], 3, 0, []),
        ([2, 3], [4, 5], 5, 9, [0, 1]),
        ([1, 1], [MAX, 1], 1, MAX, [0]),
        ([4, 5], [1, 1], 3, 0, []),  # nothing fits
        ([0, 7], [2, 9], 0, 2, [0]),  # size 0 always fits
        ([1, 2], [0, 3], 3, 3, [1]),  # what gains nothing is not saved
        ([2_000_000, 3], [5, 4], 2_000_000, 5, [0]),
        ([80 << 30, 1], [5, 4], 80 << 30, 5, [0]),
    ],
)
def test_the_optimum_is_found(
    sizes: list[int], gains: list[int], capacity: int, gain: int, chosen: list[int]
) -> None:
    selection = solve(sizes, gains, capacity)
    assert (selection.gain, saved(selection)) == (gain, chosen)
    assert selection.proven
    assert selection.upper_bound == gain


@pytest.mark.parametrize(
    ("sizes", "gains", "capacity"),
    [
        ([1, 1], [MAX, 1], 2),  # everything fits
        ([1, 1, 1], [MAX, 1, 1], 2),  # the densest two overflow
        ([0, 0, 3], [MAX, 1, 1], 0),  # so do candidates of size 0
        ([2, 2, 3], [2**62, 2**62, 1], 4),  # equal ones overflow together
        ([6, 5, 5], [MAX, 2**62, 2**62], 10),  # the densest one alone does not
    ],
)
def test_an_optimum_beyond_int64_is_an_error(
    sizes: list[int], gains: list[int], capacity: int
) -> None:
    with pytest.raises(OverflowError, match="2\\^63-1"):
        solve(sizes, gains, capacity)


def test_gains_may_sum_beyond_int64_if_the_optimum_does_not() -> None:
    selection = solve([1, 1, 1], [MAX, MAX, MAX - 1], 1)
    assert (selection.gain, saved(selection), selection.proven) == (MAX, [0], True)


def test_of_equal_candidates_the_earlier_are_saved() -> None:
    assert saved(solve([9, 3, 3, 3, 3], [1, 5, 5, 5, 5], 10)) == [1, 2, 3]


def test_sizes_may_have_a_common_divisor() -> None:
    assert solve([6 << 20, 4 << 20, 4 << 20], [5, 3, 3], (8 << 20) + 17).gain == 6


def test_a_state_limit_gives_a_feasible_answer_with_its_bound() -> None:
    sizes, gains = hard_instance(60)
    limited = knapsack.solve(sizes, gains, int(sizes.sum()) // 2, state_limit=500)
    exact = knapsack.solve(sizes, gains, int(sizes.sum()) // 2)
    assert exact.proven
    assert not limited.proven
    assert limited.gain <= exact.gain <= limited.upper_bound
    assert limited.gain == gains[limited.mask].sum()
    assert sizes[limited.mask].sum() <= sizes.sum() // 2


def test_no_states_at_all_still_give_the_greedy_answer() -> None:
    selection = solve([3, 2, 2], [5, 3, 3], 4, state_limit=0)
    assert (selection.gain, selection.upper_bound, selection.proven) == (5, 6, False)


def hard_instance(n: int) -> tuple[Int64, Int64]:
    """Strongly correlated: gains are sizes and a constant, so densities say little."""
    sizes = np.random.default_rng(n).integers(1, 10_000, n)
    return sizes, sizes + 1000


def endless_instance() -> tuple[Int64, Int64]:
    """Even sizes but one, an odd capacity: no density helps, and no sum of states is proof."""
    sizes = 2 * np.random.default_rng(0).integers(1 << 40, 1 << 41, 80)
    sizes[0] += 1
    return sizes, sizes.copy()


def test_a_flag_set_before_stops_before_the_first_state() -> None:
    cancel = np.ones(1, dtype=np.uint8)
    with pytest.raises(SolveCancelled) as stopped:
        solve([3, 2, 2], [5, 3, 3], 4, cancel=cancel)
    assert stopped.value.states == 0


def test_the_search_itself_reads_the_flag_before_its_first_list() -> None:
    sizes, gains = np.array([3, 2]), np.array([5, 3])
    cancel = np.ones(1, dtype=np.uint8)
    found = core.search(sizes, gains, np.ones_like(sizes), 4, 0, False, 100, cancel)
    assert (found.status, found.states) == (core.CANCELLED, 0)


def test_a_flag_set_while_solving_stops_at_the_next_list() -> None:
    sizes, gains = endless_instance()
    cancel, looked_at = np.zeros(1, dtype=np.uint8), []
    limit = 1 << 30  # more states than memory holds

    def run() -> None:
        with pytest.raises(SolveCancelled) as stopped:
            knapsack.solve(sizes, gains, int(sizes.sum()) // 3, state_limit=limit, cancel=cancel)
        looked_at.append(stopped.value.states)

    thread = Thread(target=run)
    thread.start()
    Event().wait(0.05)  # only lets it get under way: the outcome is the same without
    cancel[0] = 1
    thread.join()
    assert len(looked_at) == 1
    assert looked_at[0] < limit


@pytest.mark.parametrize(
    ("sizes", "gains", "capacity", "message"),
    [
        ([1, 2], [1], 3, "2 sizes but 1 gains"),
        ([1, -2], [1, 1], 3, "sizes\\[1\\] is negative"),
        ([1], [-1], 3, "gains\\[0\\] is negative"),
        ([1], [1], -1, "capacity -1 is negative"),
        ([2**62, 2**62 + 1], [1, 1], 2**62 + 3, "above 2\\^62"),
    ],
)
def test_bad_values_are_refused_by_name(
    sizes: list[int], gains: list[int], capacity: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        solve(sizes, gains, capacity)


@pytest.mark.parametrize("sizes", [[1, 2], np.array([1.0, 2.0]), np.ones((1, 2), dtype=np.int64)])
def test_only_int64_vectors_are_taken(sizes: Any) -> None:
    with pytest.raises(TypeError, match="sizes is not a one-dimensional int64 array"):
        knapsack.solve(sizes, np.array([1, 2]), 3)


def test_read_only_arrays_are_taken_and_left_alone() -> None:
    sizes = np.frombuffer(np.array([3, 2, 2]).tobytes(), dtype=np.int64)
    assert knapsack.solve(sizes, sizes, 4).gain == 4


def test_the_package_itself_loads_nothing() -> None:
    code = "import sys, haversack_kernels; print({'numba', 'numpy'} & set(sys.modules))"
    environment = {"PYTHONPATH": "kernels"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == "set()"
