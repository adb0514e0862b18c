"""The dense knapsack DP on cases small enough to check by hand, and what it refuses."""

from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from haversack_kernels import dense, dense_rows, dense_sweep, dense_target
from haversack_kernels._jit import Int64
from haversack_kernels.dense_items import reduced

MAX = 2**63 - 1


def column(values: list[int]) -> Int64:
    return np.array(values, dtype=np.int64)


def solve_all(sizes: list[int], gains: list[int], capacity: int, **options: Any) -> dense.Curve:
    return dense.solve_all(column(sizes), column(gains), capacity, **options)


def solve_one(sizes: list[int], gains: list[int], capacity: int, **options: Any) -> dense.Chosen:
    return dense.solve_one(column(sizes), column(gains), capacity, **options)


def saved(mask: NDArray[np.bool_]) -> list[int]:
    return [int(i) for i in np.flatnonzero(mask)]


def test_one_sweep_answers_every_capacity() -> None:
    curve = solve_all([3, 2, 2], [5, 3, 3], 7)
    assert curve.gains.tolist() == [0, 0, 3, 5, 6, 8, 8, 11]
    chosen = [saved(curve.trace(capacity)) for capacity in range(8)]
    assert chosen == [[], [], [1], [0], [1, 2], [0, 1], [0, 1], [0, 1, 2]]


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
        ([9, 3, 3, 3, 3], [1, 5, 5, 5, 5], 10, 15, [1, 2, 3]),  # of equal ones the earlier
        ([6 << 20, 4 << 20, 4 << 20], [5, 3, 3], (8 << 20) + 17, 6, [1, 2]),  # a common divisor
    ],
)
def test_the_optimum_is_found(
    sizes: list[int], gains: list[int], capacity: int, gain: int, chosen: list[int]
) -> None:
    curve = solve_all(sizes, gains, capacity)
    assert (curve.gain(capacity), saved(curve.trace(capacity))) == (gain, chosen)
    for memory in ("bits", "hirschberg"):
        one = solve_one(sizes, gains, capacity, memory=memory)
        assert (one.gain, saved(one.mask)) == (gain, chosen)


def test_equal_answers_share_a_step_and_the_curve_ends_where_everything_fits() -> None:
    curve = solve_all([20, 10], [7, 4], 1000)
    assert curve.step == 10
    assert curve.gains.tolist() == [0, 4, 7, 11]
    assert [curve.gain(capacity) for capacity in (0, 9, 10, 29, 30, 1000)] == [0, 0, 4, 7, 11, 11]


def test_many_capacities_are_traced_at_once() -> None:
    curve = solve_all([3, 2, 2], [5, 3, 3], 7)
    assert curve.traces([]).shape == (0, 3)
    assert [saved(mask) for mask in curve.traces([7, 4, 2])] == [[0, 1, 2], [1, 2], [1]]


def test_a_unit_rounds_sizes_up_and_the_capacity_down() -> None:
    curve = solve_all([21, 20, 20], [9, 5, 5], 49, unit=10)
    assert curve.step == 10
    assert curve.gain(49) == 10  # four cells: 3 + 2 would be one too many, though 21 + 20 fit
    assert saved(curve.trace(49)) == [1, 2]
    assert solve_one([21, 20, 20], [9, 5, 5], 49, unit=10).gain == 10


@pytest.mark.parametrize("capacity", [-1, 8])
def test_a_curve_answers_only_what_it_was_solved_for(capacity: int) -> None:
    with pytest.raises(ValueError, match=f"capacity {capacity} is not between 0 and 7"):
        solve_all([3], [5], 7).gain(capacity)


@pytest.mark.parametrize(
    ("sizes", "gains", "capacity"),
    [
        ([1, 1], [MAX, 1], 2),  # everything fits
        ([1, 1, 1], [MAX, 1, 1], 2),
        ([0, 0, 3], [MAX, 1, 1], 0),  # candidates of size 0
        ([0, 3, 4], [1, MAX, 1], 3),  # one of size 0 and one that fits
        ([2, 2, 3], [2**62, 2**62, 1], 4),  # equal ones
        ([2, 3, 9], [2**62, 2**62, 1], 5),
        ([6, 5, 4, 7], [MAX, 2**62, 2**62, 1], 10),
    ],
)
def test_an_optimum_beyond_int64_is_an_error(
    sizes: list[int], gains: list[int], capacity: int
) -> None:
    with pytest.raises(OverflowError, match="2\\^63-1"):
        solve_all(sizes, gains, capacity)
    for memory in ("bits", "hirschberg"):
        with pytest.raises(OverflowError, match="2\\^63-1"):
            solve_one(sizes, gains, capacity, memory=memory)


def test_gains_may_sum_beyond_int64_if_the_optimum_does_not() -> None:
    curve = solve_all([70, 70, 3], [MAX, MAX - 1, MAX - 2], 71)
    assert (curve.gain(71), saved(curve.trace(71))) == (MAX, [0])
    assert (curve.gain(69), saved(curve.trace(69))) == (MAX - 2, [2])


@pytest.mark.parametrize(
    ("most", "vector_max", "dtype"),
    [
        (2**31 - 1, True, np.int32),
        (2**31 - 1, False, np.int32),
        (2**31, True, np.int64),
        (2**31, False, np.float64),
        (2**53 - 1, False, np.float64),
        (2**53, False, np.int64),
        (MAX + 1, True, np.int64),
    ],
)
def test_cells_are_of_the_fastest_type_that_holds_all_gains(
    monkeypatch: pytest.MonkeyPatch, most: int, vector_max: bool, dtype: type
) -> None:
    monkeypatch.setattr(dense_rows, "has_avx512", lambda: vector_max)
    kind = dense_rows.cell_type(column([most // 2, most - most // 2]))
    assert kind.dtype == dtype
    assert kind.may_overflow == (most > MAX)


def test_equal_candidates_are_cut_into_chunks() -> None:
    items = reduced(column([3] * 100), column([5] * 100), 90, 1)
    assert items.step == 3
    assert items.copies.tolist() == [1, 2, 4, 8, 15]  # of 30 that fit
    assert items.size.tolist() == [1, 2, 4, 8, 15]


def test_windows_spare_cells_beyond_the_reach() -> None:
    sizes = column([64] * 4)
    rows = dense_rows.all_rows(sizes, sizes, 150, dense_rows.cell_type(sizes))
    assert (rows.low.tolist(), rows.high.tolist()) == ([64] * 4, [64, 128, 150, 150])


def test_windows_spare_cells_from_which_the_capacity_is_out_of_reach() -> None:
    sizes = column([64] * 4)
    rows = dense_rows.plan_rows(sizes, sizes, 300, 64, dense_rows.cell_type(sizes))
    assert (rows.low.tolist(), rows.high.tolist()) == ([64, 108, 172, 236], [64, 128, 192, 256])


@pytest.mark.parametrize("zen4", sorted({False, dense_target.is_zen4()}))
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_a_block_is_improved_and_its_decisions_are_bits(
    monkeypatch: pytest.MonkeyPatch, zen4: bool, dtype: type
) -> None:
    monkeypatch.setattr(dense_sweep, "is_zen4", lambda: zen4)

    @numba.njit
    def improve_block(row: Any, at: int, source: int, gain: Any, bits: Any) -> None:
        dense_sweep.improve(row, at, source, gain, bits, 1)  # type: ignore[call-arg]

    for size in (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 120, 128):
        row: NDArray[Any] = np.random.default_rng(size).integers(0, 50, 256).astype(dtype)
        here, moved = row[128:192].copy(), row[128 - size : 192 - size] + dtype(9)
        expected = row.copy()
        expected[128:192] = np.maximum(here, moved)
        bits = np.zeros(3, dtype=np.uint64)
        improve_block(row, 128, 128 - size, dtype(9), bits)
        assert row.tolist() == expected.tolist()
        decisions = np.unpackbits(bits.view(np.uint8), bitorder="little")
        assert decisions[64:128].tolist() == (moved > here).tolist()
        assert (bits[0], bits[2]) == (0, 0)


def test_no_gain_lifts_the_cells_below_a_size() -> None:
    assert solve_all([1], [2**31 - 1], 1).gains.tolist() == [0, 2**31 - 1]
    assert solve_all([1], [MAX], 1).gains.tolist() == [0, MAX]


@pytest.mark.parametrize(
    ("sizes", "gains", "capacity", "options", "message"),
    [
        ([1, 2], [1], 3, {}, "2 sizes but 1 gains"),
        ([1, -2], [1, 1], 3, {}, "sizes\\[1\\] is negative"),
        ([1], [-1], 3, {}, "gains\\[0\\] is negative"),
        ([1], [1], -1, {}, "capacity -1 is negative"),
        ([1], [1], 1, {"unit": 0}, "unit 0 is not between 1 and 2\\^63-1"),
    ],
)
def test_bad_values_are_refused_by_name(
    sizes: list[int], gains: list[int], capacity: int, options: dict[str, Any], message: str
) -> None:
    for solve in (solve_all, solve_one):
        with pytest.raises(ValueError, match=message):
            solve(sizes, gains, capacity, **options)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="memory 'rows' is neither 'bits' nor 'hirschberg'"):
        solve_one([1, 1], [1, 1], 1, memory="rows")


@pytest.mark.parametrize("sizes", [[1, 2], np.array([1.0, 2.0]), np.ones((1, 2), dtype=np.int64)])
def test_only_int64_vectors_are_taken(sizes: Any) -> None:
    with pytest.raises(TypeError, match="sizes is not a one-dimensional int64 array"):
        dense.solve_all(sizes, np.array([1, 2]), 3)


def test_read_only_arrays_are_taken_and_left_alone() -> None:
    sizes = np.frombuffer(column([3, 2, 2]).tobytes(), dtype=np.int64)
    assert dense.solve_all(sizes, sizes, 4).gain(4) == 4


def test_a_wavefront_stops_at_the_next_chunk_of_its_group() -> None:
    kind = dense_rows.CellType(np.int32, 2**31 - 1, may_overflow=False)
    rows = dense_rows.all_rows(column([1000, 1000]), column([5, 5]), 1999, kind)
    rows = rows._replace(high=column([1999, 1999]))  # blocks 15 to 31, from the top
    rows, word_count = dense_rows.keeping(rows, 0, 0)
    row = np.empty(dense_rows.row_cells(1999), dtype=np.int32)
    bits, progress = np.full(word_count, 99, dtype=np.uint64), np.zeros(2, dtype=np.int64)
    bits[16] = 0  # the first row's decisions in block 31, a byte of which is the flag
    cancel = bits[16:17].view(np.uint8)[:1]
    ended = dense_sweep.sweep(row, rows, column([2]), 0, bits, kind.most, cancel, progress)
    assert (ended, progress[0]) == ((dense_sweep.CANCELLED, 0), 0)
    assert bits.tolist() == [99] * 16 + [2**64 - 1] + [99] * 17
