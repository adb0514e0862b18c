"""What a dense solve takes, gives back, counts and stops at."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from haversack_kernels import arena, dense, dense_memory, dense_rows
from haversack_kernels._jit import Int64
from haversack_kernels.arena import ArenaLimitError, Lease
from haversack_kernels.dense_items import reduced
from haversack_kernels.errors import SolveCancelled


def instance(n: int, largest: int = 400, seed: int = 0) -> tuple[Int64, Int64, int]:
    """Return uncorrelated sizes and gains and half of all sizes."""
    sizes, gains = np.random.default_rng(seed).integers(1, largest + 1, (2, n))
    return sizes, gains, int(sizes.sum()) // 2


# Memory


def test_half_a_billion_cells_take_less_than_70_megabytes() -> None:
    sizes = np.random.default_rng(0).integers(1, 80, 5000)
    gains = np.random.default_rng(1).integers(1, 10**6, 5000)
    items = reduced(sizes, gains, 100_000, 1)
    assert items.size.size * items.capacity > 499_000_000
    assert dense_memory.need_for_all(items).size_bytes <= 70e6
    two_rows = 2 * dense_rows.row_bytes(items.capacity, dense_rows.cell_type(items.gain))
    assert dense_memory.need_for_one_sparing(items).size_bytes <= two_rows + 10**6


def test_a_refusal_names_a_unit_that_will_do() -> None:
    sizes, gains, capacity = instance(300)
    with pytest.raises(ArenaLimitError, match=r"unit=\d+ would do") as refused:
        dense.solve_all(sizes << 20, gains, capacity << 20, arena_limit_bytes=100_000)
    assert refused.value.needed_bytes > 100_000
    assert refused.value.unit is not None
    assert refused.value.unit % (1 << 20) == 0  # coarser than 1 MiB, which loses nothing
    unit = refused.value.unit
    dense.solve_all(sizes << 20, gains, capacity << 20, unit=unit, arena_limit_bytes=100_000)


@pytest.mark.parametrize("memory", ["bits", "hirschberg"])
def test_bytes_at_80_gib_are_refused_before_anything_is_allocated(memory: Any) -> None:
    sizes, gains = np.random.default_rng(0).integers(1 << 28, 1 << 29, (2, 500))
    with pytest.raises(ArenaLimitError, match=r"cells of 1 take \d+ bytes") as refused:
        dense.solve_one(sizes, gains, 80 << 30, memory=memory, arena_limit_bytes=1 << 23)
    unit = refused.value.unit
    assert unit is not None
    chosen = dense.solve_one(
        sizes, gains, 80 << 30, memory=memory, unit=unit, arena_limit_bytes=1 << 23
    )
    assert sizes[chosen.mask].sum() <= 80 << 30


def test_a_refusal_names_the_mode_that_would_do() -> None:
    sizes, gains = np.random.default_rng(0).integers(1, 400, (2, 3000))
    limit_bytes = (1 << 20) + 2_500_000
    with pytest.raises(ArenaLimitError, match=r"unit=\d+ or memory='hirschberg' would do"):
        dense.solve_one(sizes, gains, 300_000, arena_limit_bytes=limit_bytes)
    spared = dense.solve_one(
        sizes, gains, 300_000, memory="hirschberg", arena_limit_bytes=limit_bytes
    )
    assert spared.gain == dense.solve_one(sizes, gains, 300_000).gain


def test_more_candidates_than_memory_are_refused_without_a_unit() -> None:
    sizes, gains, capacity = instance(500)
    with pytest.raises(ArenaLimitError, match="no unit would do") as refused:
        dense.solve_all(sizes, gains, capacity, arena_limit_bytes=0)
    assert refused.value.unit is None


def test_what_fits_as_a_whole_needs_no_memory() -> None:
    sizes, gains, _ = instance(50)
    chosen = dense.solve_one(sizes << 30, gains, 1 << 60, arena_limit_bytes=0)
    assert chosen.mask.all()


# The arena


@pytest.fixture
def empty_arena() -> None:
    arena.free_idle()


@pytest.mark.usefixtures("empty_arena")
def test_memory_that_was_given_back_is_lent_again() -> None:
    with Lease(1000) as lease:
        first = lease.array(10, np.int64)
    with Lease(900) as lease:
        assert lease.array(10, np.int64).ctypes.data == first.ctypes.data
        with Lease(900) as other:
            assert other.array(10, np.int64).ctypes.data != first.ctypes.data


@pytest.mark.usefixtures("empty_arena")
def test_arrays_of_a_lease_start_on_cache_lines_and_do_not_overlap() -> None:
    with Lease(arena.aligned(3) + arena.aligned(24)) as lease:
        bytes_, numbers = lease.array(3, np.uint8), lease.array(3, np.int64)
        assert bytes_.ctypes.data % arena.LINE == numbers.ctypes.data % arena.LINE == 0
        assert numbers.ctypes.data - bytes_.ctypes.data == arena.LINE


@pytest.mark.usefixtures("empty_arena")
def test_no_more_than_a_limit_is_kept_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "IDLE_LIMIT_BYTES", 3000)
    leases = [Lease(1000) for _ in range(4)]
    for lease in leases:
        lease.give_back()
        lease.give_back()  # twice is once
    assert len({buffer.ctypes.data for buffer in arena._idle}) == len(arena._idle) == 2


@pytest.mark.usefixtures("empty_arena")
def test_a_solve_maps_no_memory_that_another_has_left() -> None:
    sizes, gains, capacity = instance(300)
    dense.solve_all(sizes, gains, capacity)
    buffers = [buffer.ctypes.data for buffer in arena._idle]
    dense.solve_all(sizes, gains, capacity)
    dense.solve_one(sizes, gains, capacity)
    assert len(buffers) == 1
    assert [buffer.ctypes.data for buffer in arena._idle] == buffers


@pytest.mark.usefixtures("empty_arena")
def test_a_curve_keeps_its_memory_until_it_is_dropped() -> None:
    sizes, gains, capacity = instance(100)
    curve = dense.solve_all(sizes, gains, capacity)
    before = curve.gains.copy()
    dense.solve_all(sizes, gains[::-1].copy(), capacity)
    assert len(arena._idle) == 1  # the other's
    gain = int(gains[curve.trace(capacity)].sum())
    assert gain == curve.gain(capacity) == before[-1]
    del curve
    assert len(arena._idle) == 2


@pytest.mark.usefixtures("empty_arena")
def test_a_failed_solve_gives_its_memory_back() -> None:
    huge = np.array([2**62, 2**62, 1])
    with pytest.raises(OverflowError):
        dense.solve_all(np.array([2, 3, 9]), huge, 5)
    assert len(arena._idle) == 1


# Cancelling and progress. A flag that is a byte of the counter is set by the count itself: without
# threads or clocks, the solve has to notice it at the very next row.


def counter() -> tuple[Int64, NDArray[np.uint8]]:
    progress = np.zeros(2, dtype=np.int64)
    return progress, progress.view(np.uint8)


@pytest.mark.parametrize(("byte", "rows"), [(0, 1), (1, 256)])
def test_a_cancelled_sweep_stops_at_the_next_row(byte: int, rows: int) -> None:
    sizes, gains, capacity = instance(300)
    progress, its_bytes = counter()
    with pytest.raises(SolveCancelled) as stopped:
        dense.solve_all(
            sizes, gains, capacity, cancel=its_bytes[byte : byte + 1], progress=progress
        )
    assert progress[0] == rows
    items = reduced(sizes, gains, capacity, 1)
    assert progress[1] == items.size.size
    words = dense_rows.words(
        dense_rows.all_rows(items.size, items.gain, items.capacity, dense_rows.cell_type(gains))
    )
    assert stopped.value.states == 64 * words[:rows].sum()


@pytest.mark.parametrize("memory", ["bits", "hirschberg"])
def test_so_does_one_capacity(memory: Any) -> None:
    sizes, gains, capacity = instance(300)
    progress, its_bytes = counter()
    with pytest.raises(SolveCancelled):
        dense.solve_one(
            sizes, gains, capacity, memory=memory, cancel=its_bytes[:1], progress=progress
        )
    assert progress[0] == 1


def test_a_wavefront_stops_at_the_next_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_rows, "ROW_CACHE_BYTES", 0)
    sizes, gains, capacity = instance(300)
    progress, its_bytes = counter()
    monkeypatch.setattr(dense_rows, "WAVE_BYTES", 20 * 4096 * 4)
    ends = dense_rows.wave_ends(np.sort(sizes), 4)
    assert 10 < ends[0] < 50
    with pytest.raises(SolveCancelled):
        dense.solve_all(sizes, gains, capacity, cancel=its_bytes[:1], progress=progress)
    assert progress[0] == ends[0]


def test_a_flag_set_before_stops_before_the_first_row() -> None:
    sizes, gains, capacity = instance(30)
    progress = np.full(2, 7)
    for solve in (dense.solve_all, dense.solve_one):
        with pytest.raises(SolveCancelled):
            solve(sizes, gains, capacity, cancel=np.ones(1, dtype=np.uint8), progress=progress)
        assert progress.tolist() == [0, 0]


@pytest.mark.parametrize("n", [300, 301])
def test_progress_ends_at_all_rows(n: int) -> None:
    sizes = np.random.default_rng(0).permutation(n) + 50  # all different
    for solve in (dense.solve_all, dense.solve_one):
        progress = np.zeros(2, dtype=np.int64)
        solve(sizes, sizes[::-1].copy(), 20_000, progress=progress)
        assert progress.tolist() == [n, n]  # each once: with all bits kept nothing is left


def test_halving_counts_rows_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_memory, "LEAF_WORDS", 100)
    sizes, gains, capacity = instance(300)
    progress = np.zeros(2, dtype=np.int64)
    dense.solve_one(sizes, gains, capacity, memory="hirschberg", progress=progress)
    assert progress[0] == progress[1] > 600


@pytest.mark.parametrize(
    "progress", [[0, 0], np.zeros(2), np.zeros(3, np.int64), np.zeros(4, np.int64)[::2]]
)
def test_progress_of_another_layout_is_refused(progress: Any) -> None:
    with pytest.raises(TypeError, match="progress is not a contiguous int64 array of two elements"):
        dense.solve_all(np.array([1]), np.array([1]), 1, progress=progress)


# Threads


def test_eight_solves_at_once_give_the_answers_of_one_at_a_time() -> None:
    instances = [instance(200 + 7 * seed, 50 + 100 * seed, seed) for seed in range(8)]

    def answers(case: tuple[Int64, Int64, int]) -> list[Any]:
        sizes, gains, capacity = case
        curve = dense.solve_all(sizes, gains, capacity)
        one = dense.solve_one(sizes, gains << 30, capacity)
        spared = dense.solve_one(sizes, gains, capacity, memory="hirschberg")
        chosen = curve.traces(list(range(0, capacity, capacity // 10)))
        return [curve.gains.tolist(), chosen.tolist(), one.mask.tolist(), spared.mask.tolist()]

    alone = [answers(case) for case in instances]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(answers, instances * 4))
    assert together == alone * 4
