"""Runs the checks in numba's CUDA simulator: ``python -m tests.gpu.simulated``.

With ``NUMBA_ENABLE_CUDASIM=1``, and in a process of its own, for the simulator replaces
``numba.cuda`` for good. Prints one JSON object: a check's name, and null or what went wrong.
"""

import json
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.gpu import checks, instances

from haversack_kernels import cuda
from haversack_kernels.cuda import ceiling_kernels, ceiling_tables, knapsack_kernels, warmup
from haversack_kernels.cuda.compiled import simulated
from haversack_kernels.cuda.knapsack_sweep import tiling_for
from haversack_kernels.cuda.knapsack_tables import cell_type
from haversack_kernels.cuda.launch import Queue

TILE = 32 * 32
"""Cells of a block of 32 threads."""


def knapsack_paths() -> None:
    taken = set()
    for seed, path in enumerate(("one tile", "fused", "one by one", "all paths", "equal")):
        problem = instances.knapsack(path, TILE, seed)
        curve = checks.rows_decisions_and_subsets_are_the_cpus(problem)
        assert curve._swept is not None
        taken |= {(step.one_blocks > 1, step.tiles > 1) for step in curve._swept.tables.steps}
    # Several blocks by one candidate, several tiles by a group, and one block of either.
    assert {(True, False), (False, True), (False, False)} <= taken


def one_candidate_at_a_time() -> None:
    tiling = tiling_for(cell_type(1))
    alone = type(tiling)(most_threads=32, multiprocessors=1, fuse=False)
    problem = instances.knapsack("fused", TILE, 11)
    checks.rows_decisions_and_subsets_are_the_cpus(problem, alone)


def one_capacity() -> None:
    for seed, path in enumerate(("fused int64", "one by one")):
        checks.one_capacity_is_solved_as_all_are(instances.knapsack(path, TILE, 60 + seed))


def knapsack_batch() -> None:
    problems = [
        instances.knapsack(path, TILE, 20 + seed)
        for seed, path in enumerate(("one tile", "fused int64", "one by one"))
    ]
    everything_fits = instances.Knapsack(np.array([3, 4]), np.array([1, 2]), 50)
    checks.a_batch_is_solved_as_its_problems_are([*problems, everything_fits])


def knapsack_portions() -> None:
    problems = [instances.knapsack("one tile", 256, 30 + seed) for seed in range(3)]
    checks.a_batch_is_solved_as_its_problems_are(problems, memory_limit_bytes=9000)


def chains() -> None:
    taken = set()
    for seed, path in enumerate(instances.CHAIN_PATHS):
        chain = instances.chain(path, ceiling_kernels.TILE, seed)
        checks.rows_decisions_and_plans_are_the_oracles(chain, fuse=True)
        slots = ceiling_tables.slotted(chain, 1)
        assert slots is not None
        steps = ceiling_tables.tabled([slots], fuse=True).steps
        taken |= {(step.one_blocks > 1, step.tiles > 1) for step in steps}
    assert {(True, False), (False, True), (False, False)} <= taken
    never = instances.chain("free", ceiling_kernels.TILE, 3)
    assert ceiling_tables.slotted(never, 1) is None
    checks.rows_decisions_and_plans_are_the_oracles(never, fuse=True)


def one_block_at_a_time() -> None:
    chain = instances.chain("fused", 256, 5)
    checks.rows_decisions_and_plans_are_the_oracles(chain, fuse=False)


def chains_as_on_the_cpu() -> None:
    for seed in range(4):
        checks.plans_are_the_cpus(instances.chain("one tile", 256, 40 + seed))


def chain_batch() -> None:
    chain = instances.chain("one tile", 256, 6)
    frontier = checks.under_budgets(chain, [-60, -30, 0, 30, -(10**6)])
    checks.a_batch_is_planned_as_its_chains_are([*frontier, instances.chain("free", 256, 7)])
    checks.a_batch_is_planned_as_its_chains_are(frontier, memory_limit_bytes=9000)


def beyond_int64() -> None:
    with warnings.catch_warnings():
        # What lies beyond is flagged, then swept on with sums that have wrapped around.
        warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning, append=False)
        checks.an_optimum_beyond_int64_is_refused_exactly()


def memory() -> None:
    for seed, path in enumerate(instances.KNAPSACK_PATHS):
        problem = instances.knapsack(path, TILE, 70 + seed)
        checks.no_sweep_needs_more_memory_than_is_said(problem)


def warm() -> None:
    launched = set()
    launch = Queue.launch

    def note(
        self: Queue,
        kernel: Any,
        signature: tuple[Any, ...],
        grid: tuple[int, int],
        threads: int,
        *arguments: Any,
        shared_bytes: int = 0,
    ) -> None:
        if all(grid):
            launched.add((kernel, signature))
        launch(self, kernel, signature, grid, threads, *arguments, shared_bytes=shared_bytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Queue, "launch", note)
        warmup.warm_up()
    wanted = set()
    for name in ("int32", "int64"):
        cell = np.dtype(name)
        taken = knapsack_kernels.signature(cell)
        wanted |= {(knapsack_kernels.sweep_one, taken["sweep_one"])}
        wanted |= {(knapsack_kernels.SWEEP_GROUP[cell], taken["sweep_group"])}
        wanted |= {(knapsack_kernels.trace, taken["trace"])}
        taken = ceiling_kernels.signature(cell)
        wanted |= {(getattr(ceiling_kernels, each), taken[each]) for each in taken}
    assert launched >= wanted


def no_device() -> None:
    assert simulated()
    assert cuda.device() is None


def _small(path: str, seed: int) -> instances.Knapsack:
    return instances.knapsack(path, 256, seed)


CHECKS: dict[str, Callable[[], object]] = {
    "rows, decisions and subsets on every path": knapsack_paths,
    "one capacity": one_capacity,
    "one candidate at a time": one_candidate_at_a_time,
    "gains of the oracle": lambda: checks.gains_are_the_oracles(_small("equal", 50)),
    "rows that end at a word": lambda: checks.rows_that_end_at_a_word_are_right(
        [1, 31, 32, 33, 63, 64, 65]
    ),
    "float64 cells": lambda: checks.float64_cells_are_the_cpus(_small("one tile", 51)),
    "a batch": knapsack_batch,
    "a batch in portions": knapsack_portions,
    "sizes in units": lambda: checks.sizes_are_rounded_as_on_the_cpu(_small("equal", 52), 7),
    "an optimum beyond int64": beyond_int64,
    "a solve that is too large": lambda: checks.a_solve_that_is_too_large_names_a_unit(
        instances.knapsack("one tile", TILE, 53), 6000
    ),
    "a cancel flag": lambda: checks.a_cancel_flag_stops_the_launches(_small("one tile", 54)),
    "progress": lambda: checks.progress_counts_candidates(_small("one by one", 55)),
    "no work": checks.a_solve_without_work_is_answered,
    "rows, decisions and plans of chains": chains,
    "one block at a time": one_block_at_a_time,
    "plans as on the CPU": chains_as_on_the_cpu,
    "a batch of chains": chain_batch,
    "a plan in slots": lambda: checks.a_plan_in_slots_keeps_its_ceilings(
        instances.chain("one tile", 256, 56), 5
    ),
    "chains without a plan": checks.chains_without_a_plan_are_said_to_have_none,
    "a chain that is too large": lambda: checks.a_chain_that_is_too_large_names_a_unit(
        instances.chain("one tile", 256, 57), 7000
    ),
    "what the driver reports": checks.what_the_driver_reports_is_named,
    "memory": memory,
    "warm-up": warm,
    "no device": no_device,
}


def main() -> None:
    warnings.simplefilter("error")
    outcome: dict[str, str | None] = {}
    for name, check in CHECKS.items():
        try:
            check()
            outcome[name] = None
        except (Exception, pytest.fail.Exception):  # the latter is no Exception
            outcome[name] = traceback.format_exc()
    json.dump(outcome, sys.stdout)


if __name__ == "__main__":
    main()
