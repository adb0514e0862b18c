import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tests.unit.kernels.stopping import assert_stops_at_the_next_step

from haversack_kernels import core, knapsack, phases
from haversack_kernels._jit import Int64, signals
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
    """A subset-sum in numbers so large that no list in memory has the sum that is wanted."""
    sizes = np.random.default_rng(0).integers(1 << 53, 1 << 54, 200)
    return sizes, sizes.copy()


def test_a_flag_set_before_stops_before_the_first_state() -> None:
    cancel = np.ones(1, dtype=np.uint8)
    with pytest.raises(SolveCancelled) as stopped:
        solve([3, 2, 2], [5, 3, 3], 4, cancel=cancel)
    assert stopped.value.states == 0


def test_the_search_itself_reads_the_flag_before_its_first_list() -> None:
    sizes, gains = np.array([3, 2]), np.array([5, 3])
    cancel = np.ones(1, dtype=np.uint8)
    found = phases.search(sizes, gains, np.ones_like(sizes), 4, 100, signals(cancel))
    assert (found.status, found.states) == (core.CANCELLED, 0)


def test_a_flag_set_while_solving_stops_before_the_next_list_step() -> None:
    sizes, gains = endless_instance()
    capacity = int(sizes.sum()) // 3
    assert_stops_at_the_next_step(
        lambda cancel, steps: knapsack.solve(
            sizes, gains, capacity, state_limit=1 << 30, cancel=cancel, steps=steps
        )
    )


def test_a_flag_set_between_two_steps_stops_before_the_next() -> None:
    sizes, gains = endless_instance()
    problem, stop = knapsack.reduced(sizes, gains, int(sizes.sum()) // 3), signals(None)
    assert isinstance(problem, knapsack.Problem)
    steps = list[int]()

    def allowance() -> int:  # asked after the quick look, as many lists as that has made
        steps.append(int(stop.steps[0]))
        stop.cancel[0] = 1
        return 1 << 30

    with pytest.raises(SolveCancelled) as stopped:
        knapsack.search(problem, 1 << 30, stop, allowance)
    assert steps == [stop.steps[0]]
    assert 0 < steps[0] < stopped.value.states


def test_list_steps_are_counted() -> None:
    sizes, gains = hard_instance(60)
    steps = np.zeros(1, dtype=np.int64)
    knapsack.solve(sizes, gains, int(sizes.sum()) // 2, steps=steps)
    assert steps[0] > 5
    knapsack.solve(np.array([1, 2]), np.array([3, 4]), 3, steps=steps)
    assert steps[0] == 0  # everything fits, so there is nothing to search
    with pytest.raises(TypeError, match="steps is not an int64 array of one element"):
        solve([1], [1], 1, steps=np.zeros(2))


def test_solves_side_by_side_give_what_they_give_alone() -> None:
    problems = [hard_instance(n) for n in range(80, 88)]

    def at(problem: tuple[Int64, Int64]) -> knapsack.Selection:
        return knapsack.solve(*problem, 400_000)

    alone = list(map(at, problems))
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(at, problems))
    for one, other in zip(alone, together, strict=True):
        assert one[1:] == other[1:]
        assert (one.mask == other.mask).all()


def test_a_quota_on_copies_proves_what_densities_cannot() -> None:
    sizes, gains = hard_instance(400)  # the densest 300 or so, and the sum of their sizes
    capacity = int(np.sort(sizes)[:300].sum()) + 3000
    selection = knapsack.solve(sizes, gains, capacity, state_limit=1 << 18)
    assert selection.proven
    assert selection.gain == 300 * 1000 + capacity


@pytest.mark.parametrize("bits", [30, 34])
def test_sizes_in_bytes_are_filled_to_the_last_byte(bits: int) -> None:
    sizes = np.random.default_rng(bits).integers(1 << (bits - 1), 1 << bits, 1000)
    selection = knapsack.solve(sizes, sizes, 500 << bits >> 1)
    assert selection.proven
    assert selection.gain == 500 << bits >> 1


@pytest.mark.parametrize(
    ("sizes", "gains", "capacity", "message"),
    [
        ([1, 2], [1], 3, "2 sizes but 1 gains"),
        ([1, -2], [1, 1], 3, "sizes\\[1\\] is negative"),
        ([1], [-1], 3, "gains\\[0\\] is negative"),
        ([1], [1], -1, "capacity -1 is negative"),
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
