"""How candidates are grouped for the CUDA kernels; no kernel is loaded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haversack_kernels.cuda import memory_needed
from haversack_kernels.cuda.tiling import (
    MOVE,
    ONE_CANDIDATE_COST,
    Group,
    Tiling,
    groups,
    most_threads,
    threads_for,
)

BLOCK = 1024


def cut(sizes: list[int], row_cells: int = 10**6, *, fuse: bool = True) -> list[Group]:
    size = np.array(sizes, dtype=np.int64)
    return groups(size, 1.0, ONE_CANDIDATE_COST, row_cells, BLOCK, fuse=fuse)


@given(st.lists(st.integers(0, 2 * BLOCK), max_size=60))
def test_groups_cover_all_candidates_in_order(sizes: list[int]) -> None:
    found = cut(sorted(sizes))
    ends = [0, *(group.end for group in found)]
    assert [group.begin for group in found] == ends[:-1]
    assert ends[-1] == len(sizes)


@given(st.lists(st.integers(0, BLOCK // 2), min_size=1, max_size=60))
def test_a_halo_holds_its_group_and_leaves_a_tile(sizes: list[int]) -> None:
    for group in cut(sizes):
        if group.halo is None:
            assert group.end == group.begin + 1
        else:
            assert group.halo >= sum(sizes[group.begin : group.end])
            assert group.halo % 32 == 0
            assert group.halo < BLOCK


def test_a_row_that_fits_a_block_is_one_group_without_a_halo() -> None:
    assert cut([900, 1000, 1000], row_cells=BLOCK) == [Group(0, 3, 0)]


def test_small_candidates_are_fused_more_than_large_ones() -> None:
    few, many = cut([100] * 40)[0], cut([4] * 400)[0]
    assert 2 <= few.end < many.end
    assert [group.end for group in cut([700, 800, 900])] == [1, 2, 3]


def test_a_group_is_the_cheapest_of_its_start() -> None:
    size = 50
    costs = []
    for count in range(1, 18):
        tile = BLOCK - -(-size * count // 32) * 32
        worked = sum(BLOCK - size * k for k in range(1, count + 1)) / tile
        costs.append((worked + MOVE * (BLOCK / tile + 1)) / count)
    assert cut([size] * 100)[0].end == 1 + costs.index(min(costs))


def test_nothing_is_fused_unless_asked() -> None:
    assert all(group.halo is None for group in cut([4] * 9, row_cells=64, fuse=False))


@pytest.mark.parametrize(
    ("cell_bytes", "shared_bytes", "threads"),
    [
        (4, 232_448, 1024),  # H200: registers bind
        (8, 232_448, 768),
        (8, 101_376, 352),  # a workstation card: shared memory binds
        (4, 49_152, 352),
    ],
)
def test_the_largest_tile_fits_registers_and_shared_memory(
    cell_bytes: int, shared_bytes: int, threads: int
) -> None:
    assert most_threads(cell_bytes, shared_bytes) == threads
    assert 33 * (threads + 1) * cell_bytes <= shared_bytes


def test_blocks_are_small_where_rows_are_few_and_short() -> None:
    tiling = Tiling(most_threads=1024, multiprocessors=132)
    assert threads_for([1000], tiling) == 32
    assert threads_for([32_768], tiling) == 1024
    assert threads_for([100_000], tiling) == 128
    assert threads_for([1_000_000], tiling) == 480
    assert threads_for([30_000_000], tiling) == 1024
    assert threads_for([100_000] * 1000, tiling) == 1024


def test_memory_needed_counts_two_rows_and_a_bit_per_cell() -> None:
    assert memory_needed(0, 64, np.int64) == 2 * 64 * 8
    cells = 64 * 10**6
    assert memory_needed(1000, cells, np.int32) == 2 * cells * 4 + 1000 * (cells // 8 + 256)
