"""The CUDA kernels on a device, against the CPU's dense DP and the oracles, bit for bit."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haversack_kernels import cuda

DEVICE = cuda.device()
if DEVICE is None:
    pytest.skip("no CUDA device, or no numba-cuda to use it with", allow_module_level=True)

from tests.gpu import checks, instances  # noqa: E402

from haversack_kernels import knapsack as exact  # noqa: E402
from haversack_kernels.arena import ArenaLimitError  # noqa: E402
from haversack_kernels.cuda import ceiling_kernels, knapsack  # noqa: E402
from haversack_kernels.cuda.knapsack_sweep import tiling_for  # noqa: E402
from haversack_kernels.cuda.knapsack_tables import cell_type  # noqa: E402
from haversack_kernels.cuda.tiling import Tiling  # noqa: E402
from haversack_kernels.errors import SolveCancelled  # noqa: E402

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]


def spread(n: int, capacity: int, mean: int, most_gain: int, seed: int) -> instances.Knapsack:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 2 * mean, n)
    return instances.Knapsack(sizes, rng.integers(1, most_gain, n), capacity)


def largest_blocks(path: str) -> Tiling:
    """Return the tiling that uses the largest blocks, however many multiprocessors stay idle."""
    kind = cell_type(2**40 if path.endswith("int64") else 1)
    return Tiling(most_threads=tiling_for(kind).most_threads, multiprocessors=1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("path", instances.KNAPSACK_PATHS)
def test_rows_decisions_and_subsets_are_the_cpus(path: str, seed: int) -> None:
    tiling = largest_blocks(path)
    problem = instances.knapsack(path, 32 * tiling.most_threads, seed)
    checks.rows_decisions_and_subsets_are_the_cpus(problem, tiling)
    checks.rows_decisions_and_subsets_are_the_cpus(problem)
    checks.one_capacity_is_solved_as_all_are(problem)


@pytest.mark.parametrize("most_gain", [1000, 2**45])
@pytest.mark.parametrize(
    ("n", "capacity", "mean"), [(2000, 1_000_003, 500), (300, 8_000_000, 40_000), (7, 10**7, 10**6)]
)
def test_rows_of_millions_are_the_cpus(n: int, capacity: int, mean: int, most_gain: int) -> None:
    problem = spread(n, capacity, mean, most_gain, seed=n)
    checks.rows_decisions_and_subsets_are_the_cpus(problem)
    checks.one_capacity_is_solved_as_all_are(problem)


@pytest.mark.parametrize("threads", [32, 96, 352])
def test_every_size_of_block_gives_the_same(threads: int) -> None:
    tiling = Tiling(most_threads=threads, multiprocessors=1)
    for path in ("fused", "all paths", "fused int64"):
        problem = instances.knapsack(path, 32 * threads, threads)
        checks.rows_decisions_and_subsets_are_the_cpus(problem, tiling)


def test_one_candidate_at_a_time_gives_the_same() -> None:
    tiling = Tiling(most_threads=1024, multiprocessors=1, fuse=False)
    problem = spread(200, 500_000, 3000, 1000, seed=1)
    checks.rows_decisions_and_subsets_are_the_cpus(problem, tiling)


def test_rows_that_end_at_a_word_are_right() -> None:
    checks.rows_that_end_at_a_word_are_right([1, 31, 32, 33, 63, 64, 65, 4095, 4096, 4097])


def test_float64_cells_are_right() -> None:
    checks.float64_cells_are_the_cpus(spread(300, 200_000, 900, 2**40, seed=2))


@pytest.mark.slow
def test_a_row_beyond_2_31_cells_is_right() -> None:
    assert DEVICE is not None
    if DEVICE.memory_bytes < 40 << 30:
        pytest.skip(f"{DEVICE.memory_bytes} bytes of device memory, 40 GiB needed")
    capacity = 2**31 + 12_345
    sizes = np.array([2**30 + 1, 2**30 + 7, 2**29 + 3, 99, 2**31 - 5])
    gains = np.array([50, 52, 30, 4, 101])
    curve = knapsack.solve_all(sizes, gains, capacity)
    for room in (98, 99, 2**29 + 3, 2**30 + 200, 2**31 - 5, 2**31 + 7, capacity):
        best = exact.solve(sizes, gains, room)
        mask = curve.trace(room)
        assert curve.gain(room) == best.gain == gains[mask].sum()
        assert sizes[mask].sum() <= room


def test_a_batch_is_solved_as_its_problems_are() -> None:
    small = [instances.knapsack("one tile", 4096, seed) for seed in range(200)]
    mixed = [instances.knapsack(path, 32 * 1024, 7) for path in instances.KNAPSACK_PATHS]
    checks.a_batch_is_solved_as_its_problems_are(small + mixed)
    checks.a_batch_is_solved_as_its_problems_are(small, memory_limit_bytes=1 << 20)


def test_sizes_are_rounded_as_on_the_cpu() -> None:
    checks.sizes_are_rounded_as_on_the_cpu(spread(100, 10**8, 10**6, 1000, seed=3), unit=1000)


def test_an_optimum_beyond_int64_is_refused_exactly() -> None:
    checks.an_optimum_beyond_int64_is_refused_exactly()


def test_a_solve_without_work_is_answered() -> None:
    checks.a_solve_without_work_is_answered()


def test_progress_counts_candidates() -> None:
    checks.progress_counts_candidates(spread(500, 300_000, 2000, 1000, seed=4))


class _Tripwire(np.ndarray[Any, Any]):
    """Progress that sets a cancel flag as soon as it is more than nothing."""

    cancel: Any = None

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        if self.cancel is not None and self[0] > 0:
            self.cancel[0] = 1


def test_a_cancel_flag_stops_a_solve_under_way() -> None:
    problem = spread(400, 2_000_000, 100_000, 1000, seed=5)
    checks.a_cancel_flag_stops_the_launches(problem)
    progress = np.zeros(2, np.int64).view(_Tripwire)
    progress.cancel = np.zeros(1, np.uint8)
    with pytest.raises(SolveCancelled) as stopped:
        knapsack.solve_all(*problem, cancel=progress.cancel, progress=progress)
    assert 0 < progress[0] < progress[1]
    assert 0 < stopped.value.states < 400 * 2_000_000
    checks.one_capacity_is_solved_as_all_are(problem)


def test_a_solve_that_is_too_large_names_its_size_and_a_unit() -> None:
    problem = spread(50, 10**6, 50_000, 1000, seed=6)
    checks.a_solve_that_is_too_large_names_a_unit(problem, 5 << 20)
    sizes = np.array([2**44 + 1, 2**44 + 3, 2**43])
    with pytest.raises(ArenaLimitError, match="unit=") as refused:
        knapsack.solve_all(sizes, np.array([3, 4, 5]), 2**45)
    assert refused.value.needed_bytes > 2**46


def test_a_device_with_less_memory_than_it_said_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(knapsack, "free_bytes", lambda: 1 << 60)
    sizes = np.array([2**44 + 1, 2**44 + 3, 2**43])
    with pytest.raises(ArenaLimitError, match="unit="):
        knapsack.solve_all(sizes, np.array([3, 4, 5]), 2**45)
    checks.one_capacity_is_solved_as_all_are(spread(50, 10**5, 5000, 1000, seed=7))


def test_a_fault_ends_the_use_of_the_device_for_its_process_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.fault"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "kernels"), ".", *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.count("sticky=True the CUDA device failed with CUDA_ERROR_") == 3, done
    assert done.stdout.count("this process can use it no more, another can") == 3
    checks.one_capacity_is_solved_as_all_are(spread(50, 10**5, 5000, 1000, seed=8))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("path", instances.CHAIN_PATHS)
def test_rows_decisions_and_plans_of_chains_are_the_oracles(path: str, seed: int) -> None:
    for fuse in (True, False):
        chain = instances.chain(path, ceiling_kernels.TILE, seed)
        checks.rows_decisions_and_plans_are_the_oracles(chain, fuse=fuse)


@pytest.mark.parametrize("seed", range(4))
def test_plans_of_long_rows_are_the_cpus(seed: int) -> None:
    checks.plans_are_the_cpus(instances.chain("fused", 200_000, seed))


def test_a_batch_of_chains_is_planned_as_they_are_alone() -> None:
    chain = instances.chain("fused", ceiling_kernels.TILE, 9)
    frontier = checks.under_budgets(chain, list(range(-20_000, 20_001, 1000)))
    checks.a_batch_is_planned_as_its_chains_are(frontier)
    checks.a_batch_is_planned_as_its_chains_are(frontier, memory_limit_bytes=1 << 20)


def test_chains_are_refused_rounded_and_found_without_a_plan() -> None:
    chain = instances.chain("fused", ceiling_kernels.TILE, 10)
    checks.a_plan_in_slots_keeps_its_ceilings(chain, 37)
    checks.a_chain_that_is_too_large_names_a_unit(chain, 60_000)
    checks.chains_without_a_plan_are_said_to_have_none()


def test_what_the_driver_reports_is_named() -> None:
    checks.what_the_driver_reports_is_named()
