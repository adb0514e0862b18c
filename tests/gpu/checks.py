"""What the CUDA kernels must do, in the simulator on small sizes or on a device on large ones.

Each check raises ``AssertionError``. The CPU's dense DP and ``tests/oracles.py`` say what is right.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
from tests import oracles
from tests.gpu import instances

from haversack_kernels import ceiling as cpu_ceiling
from haversack_kernels import dense, dense_items, dense_rows
from haversack_kernels._jit import flag
from haversack_kernels.arena import ArenaLimitError, Lease
from haversack_kernels.cuda import ceiling, knapsack, launch, memory_needed
from haversack_kernels.cuda.ceiling_sweep import sweep as sweep_chains
from haversack_kernels.cuda.ceiling_tables import slotted
from haversack_kernels.cuda.ceiling_tables import tabled as chains_tabled
from haversack_kernels.cuda.errors import DeviceFaultError
from haversack_kernels.cuda.knapsack_sweep import sweep, tiling_for
from haversack_kernels.cuda.knapsack_tables import (
    cell_type,
    for_all,
    need_for_all,
    need_for_one,
    tabled,
)
from haversack_kernels.cuda.tiling import Tiling
from haversack_kernels.dense_sweep import MARGIN
from haversack_kernels.errors import SolveCancelled

MAX_INT64 = 2**63 - 1
NEVER = np.iinfo(np.int64).max


class Rows(NamedTuple):
    """Hold the last row as int64, and the decisions of all rows, 64 cells a word."""

    row: Any
    words: Any


def cpu_rows(sizes: Any, gains: Any, capacity: int, unit: int = 1) -> Rows:
    items = dense_items.reduced(sizes, gains, capacity, unit)
    kind, skipped = dense_rows.cell_type(items.gain), dense_rows.SCRATCH_WORDS
    planned = dense_rows.all_rows(items.size, items.gain, items.capacity, kind)
    rows, end = dense_rows.keeping(planned, 0, skipped)
    needed = dense_rows.row_bytes(items.capacity, kind) + dense_rows.bits_bytes(end - skipped)
    with Lease(needed) as lease:
        row = dense_rows.new_row(lease, items.capacity, kind)
        bits = dense_rows.new_bits(lease, end - skipped)
        watched = dense_rows.Watch(flag(None), np.zeros(2, np.int64))
        dense_rows.run(row, rows, bits, kind, watched)
        cells = row[MARGIN : MARGIN + items.capacity + 1].astype(np.int64)
        return Rows(cells + items.free_gain, bits[skipped:end].copy())


def rows_decisions_and_subsets_are_the_cpus(
    problem: instances.Knapsack, tiling: Tiling | None = None, traces: int = 20
) -> knapsack.DeviceCurve:
    expected = cpu_rows(*problem)
    curve = knapsack.solve_all(*problem, tiling=tiling)
    np.testing.assert_array_equal(curve.gains, expected.row)
    np.testing.assert_array_equal(curve.words(), expected.words)
    capacities = np.linspace(0, problem.capacity, traces).astype(int).tolist()
    masks = dense.solve_all(*problem, arena_limit_bytes=1 << 36).traces(capacities)
    np.testing.assert_array_equal(curve.traces(capacities), masks)
    return curve


def one_capacity_is_solved_as_all_are(problem: instances.Knapsack) -> None:
    expected = dense.solve_all(*problem, arena_limit_bytes=1 << 36)
    chosen = knapsack.solve_one(*problem)
    np.testing.assert_array_equal(chosen.mask, expected.trace(problem.capacity))
    assert chosen.gain == expected.gain(problem.capacity)


def gains_are_the_oracles(problem: instances.Knapsack) -> None:
    curve = knapsack.solve_all(*problem)
    for capacity in (0, 1, problem.capacity // 3, problem.capacity):
        gain = oracles.knapsack_by_dense_dp(problem.sizes, problem.gains, capacity)
        mask = curve.trace(capacity)
        assert curve.gain(capacity) == gain == problem.gains[mask].sum()
        assert problem.sizes[mask].sum() <= capacity


def rows_that_end_at_a_word_are_right(ends: list[int]) -> None:
    for end in ends:
        sizes = np.array([1, 2, 3, end // 2 + 1, max(end - 1, 1), end + 1])
        problem = instances.Knapsack(sizes, np.arange(6) * 7 % 5 + 1, end)
        rows_decisions_and_subsets_are_the_cpus(problem, traces=end + 1)


def float64_cells_are_the_cpus(problem: instances.Knapsack) -> None:
    """Gains sum up to less than 2^53; the service never asks for this type on a device."""
    items = dense_items.reduced(*problem, 1)
    kind = dense_rows.CellType(np.float64, 2**53, may_overflow=False)
    tables = tabled([for_all(items, kind)], kind, tiling_for(kind))
    with launch.on_device():
        swept = sweep(tables, launch.watch(None, None))
        row = swept.queue.download(swept.cells)[int(tables.buffer[0])][: items.capacity + 1]
        words = swept.queue.download(swept.bits).view(np.uint64)
    expected = cpu_rows(*problem)
    np.testing.assert_array_equal(row.astype(np.int64) + items.free_gain, expected.row)
    np.testing.assert_array_equal(words, expected.words)


def a_batch_is_solved_as_its_problems_are(
    problems: list[instances.Knapsack], memory_limit_bytes: int | None = None
) -> None:
    batch = [knapsack.Candidates(*problem) for problem in problems]
    progress = np.zeros(2, np.int64)
    found = knapsack.solve_batch(batch, memory_limit_bytes=memory_limit_bytes, progress=progress)
    for chosen, problem in zip(found, problems, strict=True):
        curve = dense.solve_all(*problem, arena_limit_bytes=1 << 36)
        np.testing.assert_array_equal(chosen.mask, curve.trace(problem.capacity))
        assert chosen.gain == curve.gain(problem.capacity)
    assert progress[0] == progress[1]


def sizes_are_rounded_as_on_the_cpu(problem: instances.Knapsack, unit: int) -> None:
    curve, expected = knapsack.solve_all(*problem, unit=unit), cpu_rows(*problem, unit)
    np.testing.assert_array_equal(curve.gains, expected.row)
    mask = curve.trace(problem.capacity)
    assert problem.sizes[mask].sum() <= problem.capacity


def an_optimum_beyond_int64_is_refused_exactly() -> None:
    sizes, gains = np.array([1, 1]), np.array([1, MAX_INT64])
    assert knapsack.solve_all(sizes, gains, 1).gain(1) == MAX_INT64
    assert knapsack.solve_one(sizes, gains, 1).gain == MAX_INT64
    for solve in (knapsack.solve_all, knapsack.solve_one):
        with pytest.raises(OverflowError, match="2\\^63-1"):
            solve(sizes, gains, 2)
    three = np.array([2, 3, 4]), np.array([MAX_INT64 - 5, 4, 6])
    assert knapsack.solve_all(*three, 5).gain(5) == MAX_INT64 - 1
    with pytest.raises(OverflowError, match="2\\^63-1"):
        knapsack.solve_all(*three, 6)


def a_solve_that_is_too_large_names_a_unit(problem: instances.Knapsack, limit: int) -> None:
    for solve in (knapsack.solve_all, knapsack.solve_one):
        with pytest.raises(ArenaLimitError, match=f"limit of {limit}: unit=") as refused:
            solve(*problem, memory_limit_bytes=limit)
        assert str(refused.value.needed_bytes) in str(refused.value)
        unit = refused.value.unit
        assert unit is not None
        assert refused.value.needed_bytes > limit
        solve(*problem, unit=unit, memory_limit_bytes=limit)
    two = [knapsack.Candidates(*problem), knapsack.Candidates(*problem)]
    with pytest.raises(ArenaLimitError, match=r"problems\[0\]: "):
        knapsack.solve_batch(two, memory_limit_bytes=limit)


class _Counting:
    """A kernel that only counts its launches, and sets a flag at the tenth."""

    def __init__(self, cancel: Any) -> None:
        self.launches, self._cancel = 0, cancel

    def __getitem__(self, configuration: Any) -> Any:
        return self

    def __call__(self) -> None:
        self.launches += 1
        if self.launches == 10:
            self._cancel[0] = 1


def a_cancel_flag_stops_the_launches(problem: instances.Knapsack) -> None:
    cancel = np.ones(1, np.uint8)
    for solve in (knapsack.solve_all, knapsack.solve_one):
        with pytest.raises(SolveCancelled):
            solve(*problem, cancel=cancel)
    cancel[0] = 0
    kernel = _Counting(cancel)
    with launch.on_device():
        queue = launch.Queue(launch.watch(cancel, None))
        with pytest.raises(SolveCancelled) as stopped:
            _launch_for_long(queue, kernel)
    assert kernel.launches == 10
    assert stopped.value.states <= 64 * 10


def _launch_for_long(queue: launch.Queue, kernel: _Counting) -> None:
    for _ in range(1000):
        queue.launch(kernel, (), (1, 1), 32)
        queue.done_with(1, 64)


def progress_counts_candidates(problem: instances.Knapsack) -> None:
    progress = np.zeros(2, np.int64)
    knapsack.solve_all(*problem, progress=progress)
    count = dense_items.reduced(*problem, 1).size.size
    assert progress.tolist() == [count, count]


def a_solve_without_work_is_answered() -> None:
    nothing = np.zeros(0, np.int64)
    curve = knapsack.solve_all(nothing, nothing, 100)
    assert curve.gain(100) == 0
    assert curve.traces([0, 50]).shape == (2, 0)
    free = np.array([0, 0, 5]), np.array([3, 0, 9])
    assert knapsack.solve_all(*free, 4).trace(4).tolist() == [True, False, False]
    assert knapsack.solve_one(*free, 4).gain == 3
    assert knapsack.solve_one(*free, 5).mask.tolist() == [True, False, True]
    assert knapsack.solve_batch([]) == []


def rows_decisions_and_plans_are_the_oracles(chain: ceiling.Chain, *, fuse: bool) -> None:
    most = int(np.maximum.reduceat(chain.retained, chain.offsets[:-1]).sum())
    row, decisions = oracles.ceiling_rows_by_dense_dp(*chain, most)
    slots = slotted(chain, 1)
    if slots is None:  # no option of some block is ever allowed
        assert row.min() == NEVER
        assert not ceiling.solve(chain, fuse=fuse).feasible
        return
    with launch.on_device():
        swept = sweep_chains([slots], chains_tabled([slots], fuse=fuse), launch.watch(None, None))
        found, taken = swept.row(0).astype(np.int64), swept.decisions()
    found[found == int(swept.tables.never)] = NEVER
    np.testing.assert_array_equal(found, row[: found.size])
    begin = 0
    for block, live in enumerate(slots.live[1:].tolist()):
        np.testing.assert_array_equal(taken[begin : begin + live], decisions[block, :live])
        begin += live
    expected = oracles.ceiling_plan_of_rows(chain.offsets, chain.retained, row, decisions)
    planned = ceiling.solve(chain, fuse=fuse)
    assert planned.feasible == bool(expected)
    if planned.feasible:
        assert planned.options.tolist() == expected
        assert planned.extra == chain.extra[expected].sum()


def plans_are_the_cpus(chain: ceiling.Chain) -> None:
    """The CPU's Pareto lists find the same plan: least extra, then leanest, then lowest options."""
    room = np.full(chain.offsets.size - 1, 2**50)
    peak = 2**50 - chain.ceiling
    expected = cpu_ceiling.solve(chain.offsets, chain.retained, peak, peak, chain.extra, room, room)
    planned = ceiling.solve(chain)
    assert expected.proven
    assert (planned.feasible, planned.exact) == (expected.feasible, True)
    assert planned.options.tolist() == expected.options.tolist()
    assert planned.extra == expected.extra


def under_budgets(chain: ceiling.Chain, budgets: list[int]) -> list[ceiling.Chain]:
    """Return the chain with its ceilings moved, once per budget."""
    return [chain._replace(ceiling=chain.ceiling + budget) for budget in budgets]


def a_batch_is_planned_as_its_chains_are(
    chains: list[ceiling.Chain], memory_limit_bytes: int | None = None
) -> None:
    found = ceiling.solve_batch(chains, memory_limit_bytes=memory_limit_bytes)
    for planned, chain in zip(found, chains, strict=True):
        alone = ceiling.solve(chain)
        assert planned.options.tolist() == alone.options.tolist()
        assert planned._replace(options=alone.options) == alone


def a_plan_in_slots_keeps_its_ceilings(chain: ceiling.Chain, unit: int) -> None:
    planned = ceiling.solve(chain, unit=unit)
    if planned.feasible:
        before = np.cumsum(chain.retained[planned.options]) - chain.retained[planned.options]
        assert (before <= chain.ceiling[planned.options]).all()
        assert planned.extra >= ceiling.solve(chain).extra


def chains_without_a_plan_are_said_to_have_none() -> None:
    one = np.array([0, 1])
    none = ceiling.solve(ceiling.Chain(one, np.array([3]), np.array([4]), np.array([-1])))
    assert (none.feasible, none.exact, none.options.tolist()) == (False, True, [-1])
    two = np.array([0, 1, 2])
    full = ceiling.Chain(two, np.array([3, 3]), np.array([1, 1]), np.array([0, 2]))
    assert not ceiling.solve(full).feasible
    assert ceiling.solve(full._replace(ceiling=np.array([0, 3]))).feasible
    empty = ceiling.Chain(np.array([0]), *(np.zeros(0, np.int64),) * 3)
    assert ceiling.solve(empty).feasible


def a_chain_that_is_too_large_names_a_unit(chain: ceiling.Chain, limit: int) -> None:
    with pytest.raises(ArenaLimitError, match=f"limit of {limit}: unit=") as refused:
        ceiling.solve(chain, memory_limit_bytes=limit)
    assert str(refused.value.needed_bytes) in str(refused.value)
    unit = refused.value.unit
    assert unit is not None
    ceiling.solve(chain, unit=unit, memory_limit_bytes=limit)


def what_the_driver_reports_is_named() -> None:
    """Leaves the process as it was: the fault is made up."""
    with pytest.raises(MemoryError), launch.on_device():
        raise RuntimeError("[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY")
    with pytest.raises(ZeroDivisionError), launch.on_device():
        raise ZeroDivisionError
    with pytest.raises(DeviceFaultError, match="solve on the CPU") as mild, launch.on_device():
        raise RuntimeError("Call to cuLaunchKernel results in CUDA_ERROR_INVALID_VALUE")
    assert not mild.value.sticky
    with pytest.raises(DeviceFaultError, match="no more") as fault, launch.on_device():
        raise RuntimeError("Call to cuCtxSynchronize results in CUDA_ERROR_ILLEGAL_ADDRESS")
    assert fault.value.sticky
    one = np.ones(1, np.int64)
    for _ in range(2):
        with pytest.raises(DeviceFaultError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            knapsack.solve_all(one * 2, one, 3)
    launch.forget_faults()
    knapsack.solve_all(one * 2, one, 3)


def no_sweep_needs_more_memory_than_is_said(problem: instances.Knapsack) -> None:
    items = dense_items.reduced(*problem, 1)
    kind = cell_type(int(items.gain.sum()))
    bound = memory_needed(items.size.size, items.capacity + 1, kind.dtype)
    for need in (need_for_all(items), need_for_one(items)):
        assert 0 < need.size_bytes <= bound
