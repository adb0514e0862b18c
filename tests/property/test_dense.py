"""The dense knapsack DP against enumeration, the textbook's two loops, and itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.oracles import knapsack_by_enumeration, knapsack_curve

from haversack_kernels import dense, dense_memory, dense_rows
from haversack_kernels._jit import Int64
from haversack_kernels.dense_sweep import BLOCK, MARGIN, WHOLE_ROW, Rows, sweep

MAX = 2**63 - 1
MEMORIES: tuple[Literal["bits", "hirschberg"], ...] = ("bits", "hirschberg")


class Instance(NamedTuple):
    sizes: list[int]
    gains: list[int]
    capacity: int

    def arrays(self) -> tuple[Int64, Int64, int]:
        sizes, gains = np.array(self.sizes, dtype=np.int64), np.array(self.gains, dtype=np.int64)
        return sizes, gains, self.capacity


block_edges = st.sampled_from((1, 63, 64, 65, 127, 128, 129, 191, 192, 193))
sizes_of_blocks = st.one_of(st.integers(0, 12), st.integers(0, 300), block_edges)


small_gains = st.integers(0, 1000)


@st.composite
def instances(draw: st.DrawFn, gains: Any = small_gains, most: int = 14) -> Instance:
    """Draw candidates, some of them equal, and a capacity at an edge of theirs, or next to it."""
    kinds = draw(st.lists(st.tuples(sizes_of_blocks, gains), min_size=1, max_size=10))
    candidates = draw(st.lists(st.sampled_from(kinds), max_size=most))
    sizes, total = [size for size, _ in candidates], sum(size for size, _ in candidates)
    subset = sum(size for size in sizes if draw(st.booleans()))
    edge = draw(st.one_of(st.sampled_from((subset, total)), sizes_of_blocks))
    capacity = max(edge + draw(st.integers(-1, 1)), 0)
    return Instance(sizes, [gain for _, gain in candidates], capacity)


MOST: dict[type, int] = {np.int32: 2**31 - 1, np.float64: 2**53, np.int64: MAX}
each_cell_type = pytest.mark.parametrize("dtype", MOST)


@contextmanager
def cells_of(dtype: type) -> Iterator[None]:
    """Let cells be of ``dtype``, whatever the gains."""
    kind = dense_rows.CellType(dtype, MOST[dtype], may_overflow=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense, "cell_type", lambda _: kind)
        patch.setattr(dense_memory, "cell_type", lambda _: kind)
        yield


def check(
    mask: NDArray[np.bool_], gain: int, sizes: Int64, gains: Int64, capacity: int, best: int
) -> None:
    assert sizes[mask].sum() <= capacity
    assert gains[mask].sum() == gain == best


@each_cell_type
@settings(max_examples=80, deadline=None)
@given(instance=instances())
def test_every_capacity_equals_the_two_loops(dtype: type, instance: Instance) -> None:
    sizes, gains, capacity = instance.arrays()
    with cells_of(dtype):
        curve = dense.solve_all(sizes, gains, capacity)
    assert curve._row.dtype == dtype
    best = knapsack_curve(sizes, gains, capacity)
    masks = curve.traces(range(capacity + 1))
    for c in range(capacity + 1):
        check(masks[c], curve.gain(c), sizes, gains, c, int(best[c]))
    assert (np.diff(curve.gains) >= 0).all()
    assert (curve.gains == best[:: curve.step][: curve.gains.size]).all()


@each_cell_type
@settings(max_examples=80, deadline=None)
@given(instance=instances(), leaf_words=st.sampled_from((0, 1, 5, 30)))
def test_one_capacity_equals_the_two_loops_however_little_is_kept(
    dtype: type, instance: Instance, leaf_words: int
) -> None:
    sizes, gains, capacity = instance.arrays()
    best = knapsack_curve(sizes, gains, capacity)[capacity]
    with cells_of(dtype), pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense_memory, "LEAF_WORDS", leaf_words)
        for memory in MEMORIES:
            one = dense.solve_one(sizes, gains, capacity, memory=memory)
            check(one.mask, one.gain, sizes, gains, capacity, best)


# Gains around the largest sums of each type, in Python integers


def near(edge: int) -> st.SearchStrategy[int]:
    return st.integers(edge - 2, min(edge + 2, MAX))


gains_at_edges = st.one_of(
    st.integers(0, 3),
    *(near(edge // part) for edge in (2**31, 2**53, 2**62, 2**63) for part in (1, 2, 3)),
)


@pytest.mark.parametrize("vector_max", [True, False])
@settings(max_examples=200, deadline=None)
@given(instance=instances(gains_at_edges, most=7))
def test_sums_at_the_edges_are_exact_or_the_optimum_exceeds_int64(
    vector_max: bool, instance: Instance
) -> None:
    sizes, gains, capacity = instance.arrays()
    best = knapsack_by_enumeration(*instance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense_rows, "has_avx512", lambda: vector_max)
        if best > MAX:
            with pytest.raises(OverflowError):
                dense.solve_all(sizes, gains, capacity)
            for memory in MEMORIES:
                with pytest.raises(OverflowError):
                    dense.solve_one(sizes, gains, capacity, memory=memory)
            return
        curve = dense.solve_all(sizes, gains, capacity)
        check(curve.trace(capacity), curve.gain(capacity), sizes, gains, capacity, best)
        for memory in MEMORIES:
            one = dense.solve_one(sizes, gains, capacity, memory=memory)
            check(one.mask, one.gain, sizes, gains, capacity, best)


# Units


@settings(max_examples=100, deadline=None)
@given(instance=instances(), unit=st.integers(1, 80))
def test_in_a_unit_sizes_are_rounded_up_and_the_capacity_down(
    instance: Instance, unit: int
) -> None:
    sizes, gains, capacity = instance.arrays()
    best = knapsack_curve(-(-sizes // unit), gains, capacity // unit)[-1]
    curve = dense.solve_all(sizes, gains, capacity, unit=unit)
    one = dense.solve_one(sizes, gains, capacity, unit=unit)
    check(curve.trace(capacity), curve.gain(capacity), sizes, gains, capacity, best)
    check(one.mask, one.gain, sizes, gains, capacity, best)


# Wavefronts


def swept(rows: Rows, capacity: int, ends: list[int], shift: int) -> tuple[Any, Any]:
    """Return the row and the bits of a sweep in the groups that end at ``ends``."""
    row = np.empty(MARGIN + (capacity // BLOCK + 1) * BLOCK, dtype=rows.gain.dtype)
    bits = np.zeros(dense_rows.SCRATCH_WORDS + int(dense_rows.words(rows).sum()), dtype=np.uint64)
    never, progress = np.zeros(1, dtype=np.uint8), np.zeros(2, dtype=np.int64)
    status = sweep(row, rows, np.array(ends), shift, bits, 2**31 - 1, never, progress)
    assert status == (0, rows.size.size) == (0, progress[0])
    return row[: MARGIN + capacity + 1], bits


@each_cell_type
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_wavefront_leaves_the_bits_of_one_candidate_at_a_time(dtype: type, data: Any) -> None:
    sizes = np.sort(data.draw(st.lists(st.integers(1, 600), min_size=2, max_size=25)))
    gains = np.array(data.draw(st.lists(st.integers(1, 99), min_size=sizes.size)))[: sizes.size]
    capacity = data.draw(st.integers(int(sizes.max()), int(sizes.sum())))
    later = data.draw(st.sampled_from((0, 100, capacity)))
    kind = dense_rows.CellType(dtype, 2**31 - 1, may_overflow=False)
    rows = dense_rows.plan_rows(sizes, gains, capacity, later, kind)
    rows, _ = dense_rows.keeping(rows, 0, dense_rows.SCRATCH_WORDS)
    alone = swept(rows, capacity, list(range(1, sizes.size + 1)), WHOLE_ROW)
    cuts = data.draw(st.sets(st.integers(1, sizes.size)))
    shift = data.draw(st.integers(0, 3))
    together = swept(rows, capacity, sorted(cuts | {sizes.size}), shift)
    assert (alone[0] == together[0]).all()
    assert (alone[1] == together[1]).all()


@pytest.mark.parametrize("seed", range(6))
def test_long_rows_are_answered_the_same_in_waves(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes, gains = random.integers(1, 5000, 150), random.integers(1, 5000, 150) << (seed % 2 * 32)
    capacity = int(sizes.sum() * random.random())
    plain = dense.solve_all(sizes, gains, capacity)
    one = dense.solve_one(sizes, gains, capacity)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dense_rows, "ROW_CACHE_BYTES", 0)
        patch.setattr(dense_rows, "WAVE_BYTES", 1 << 18)
        waves = dense.solve_all(sizes, gains, capacity)
        one_in_waves = dense.solve_one(sizes, gains, capacity)
    assert (waves.gains == plain.gains).all()
    assert (waves._bits == plain._bits)[dense_rows.SCRATCH_WORDS :].all()
    assert (one_in_waves.mask == one.mask).all()


# Hundreds of candidates


@pytest.mark.parametrize("seed", range(24))
def test_hundreds_of_candidates_equal_the_two_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(100, 400))
    kinds = random.integers(0, 20 if seed % 2 else n, n)  # repeated layers, or all different
    sizes, gains = random.integers(1, 300, n)[kinds], random.integers(1, 5000, n)[kinds]
    gains = gains << 32 * (seed % 3 == 0)
    capacity = int(sizes.sum() * random.random())
    curve, best = dense.solve_all(sizes, gains, capacity), knapsack_curve(sizes, gains, capacity)
    capacities = random.integers(0, capacity + 1, 20).tolist()
    for c, mask in zip(capacities, curve.traces(capacities), strict=True):
        check(mask, curve.gain(c), sizes, gains, c, int(best[c]))
        one = dense.solve_one(sizes, gains, c)
        check(one.mask, one.gain, sizes, gains, c, int(best[c]))
