"""What ``tests.bench.gpu`` measures; importing it loads ``numba.cuda``, or the simulator.

Sweeps are timed from the first launch to the end of the last, medians of several. A share counts
what a pass cannot avoid (a row read, a row written, a bit per cell) over the time, against the
bandwidth of a plain copy in the same run. Cells are those of the sweep's windows.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np
from tests import oracles
from tests.bench.table import Row, at_least
from tests.gpu import checks, instances

from haversack_kernels import dense, dense_items
from haversack_kernels.cuda import (
    ceiling,
    ceiling_sweep,
    knapsack,
    knapsack_kernels,
    knapsack_sweep,
)
from haversack_kernels.cuda.ceiling_tables import slotted
from haversack_kernels.cuda.ceiling_tables import tabled as chains_tabled
from haversack_kernels.cuda.compiled import cuda
from haversack_kernels.cuda.errors import DeviceFaultError
from haversack_kernels.cuda.knapsack_tables import for_all, tabled
from haversack_kernels.cuda.launch import on_device, watch
from haversack_kernels.cuda.tiling import Tiling
from haversack_kernels.dense_rows import CellType

__all__ = ["FULL", "TINY", "DeviceFaultError", "Figures"]

INT32 = CellType(np.int32, 2**31 - 1, may_overflow=False)
INT64 = CellType(np.int64, 2**63 - 1, may_overflow=False)
FLOAT64 = CellType(np.float64, 2**53, may_overflow=False)
ARENA = 1 << 37


class Scale(NamedTuple):
    """Hold the sizes that are measured."""

    copy_bytes: int
    launches: int
    long_row: int
    fused_row: int
    fused_size: int
    checked_row: int
    ladder: tuple[int, ...]
    ladder_items: int
    batch: int
    batch_row: int
    slots: int
    blocks: int
    budgets: int
    rounds: int


FULL = Scale(
    copy_bytes=1 << 32,
    launches=200,
    long_row=30_000_000,
    fused_row=10_000_000,
    fused_size=2000,
    checked_row=1_000_000,
    ladder=(10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000),
    ladder_items=100,
    batch=256,
    batch_row=20_000,
    slots=65_536,
    blocks=1000,
    budgets=32,
    rounds=3,
)
TINY = Scale(
    copy_bytes=1 << 12,
    launches=8,
    long_row=1500,
    fused_row=1500,
    fused_size=120,
    checked_row=1100,
    ladder=(100, 300),
    ladder_items=5,
    batch=3,
    batch_row=200,
    slots=200,
    blocks=4,
    budgets=2,
    rounds=1,
)


class Figures:
    """Hold the scale and the copy bandwidth of this run."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.copy_bytes_per_s = 0.0
        self._random = np.random.default_rng(20)

    def all(self) -> dict[str, Callable[[], Iterator[Row]]]:
        """Return the figures in the order in which they matter."""
        return {
            "first solve": self.first_solve,
            "copy": self.copy,
            "launches": self.launches,
            "identity": self.identity,
            "one candidate a pass": self.one_candidate,
            "fused": self.fused,
            "break-even": self.break_even,
            "batch": self.batch,
            "ceiling": self.chains,
            "traceback": self.traceback,
        }

    def first_solve(self) -> Iterator[Row]:
        """Time what a fresh process pays: context, compilation or loading from disk, one solve."""
        ones = np.arange(1, 9)
        seconds = _seconds(lambda: knapsack.solve_all(ones, ones, 20), 1)
        yield Row("start", "first solve of the process", seconds, "s")

    def copy(self) -> Iterator[Row]:
        """Copy within the device, several times the cache; bytes read and written count."""
        with on_device():
            source = cuda.to_device(np.ones(self.scale.copy_bytes // 8, np.int64))
            target = cuda.device_array_like(source)

            def work() -> None:
                target.copy_to_device(source)
                cuda.synchronize()

            work()
            seconds = _seconds(work, 5 * self.scale.rounds)
        self.copy_bytes_per_s = 2 * self.scale.copy_bytes / seconds
        yield Row("copy", "device to device, read and written", self.copy_bytes_per_s / 1e9, "GB/s")

    def launches(self) -> Iterator[Row]:
        """Time a launch that finds next to nothing to do, as numba sends it and laid out once."""
        count = np.arange(self.scale.launches)
        problem = instances.Knapsack(count + 20, count + 5, 400)
        items = dense_items.reduced(*problem, 1)
        whole = knapsack_sweep.tiling_for(INT32)
        alone = Tiling(most_threads=32, multiprocessors=whole.multiprocessors, fuse=False)
        tables = tabled([for_all(items, INT32)], INT32, alone)
        with on_device():
            swept = knapsack_sweep.prepared(tables, watch(None, None))
            laid_out = _seconds(lambda: knapsack_sweep.run(swept), self.scale.rounds, 1)
            by_numba = _seconds(partial(_sent_by_numba, swept), self.scale.rounds, 1)
        for seconds, how in ((by_numba, "numba"), (laid_out, "arguments laid out once")):
            each = seconds / len(tables.steps) * 1e6
            yield Row("launch", f"one of {len(tables.steps)} small ones, {how}", each, "us")

    def identity(self) -> Iterator[Row]:
        """Compare rows, decisions and subsets with the CPU's, bit for bit."""
        for most_gain, name in ((1000, "int32"), (2**40, "int64")):
            problem = self._problem(self.scale.checked_row, self.scale.fused_size, most_gain)
            yield _same(
                f"rows, decisions, subsets {name}, {problem.capacity} cells",
                partial(checks.rows_decisions_and_subsets_are_the_cpus, problem),
            )
        chain = self._chain(self.scale.slots // 4, min(self.scale.blocks, 100))
        yield _same(
            f"rows, decisions, plan of {chain.offsets.size - 1} blocks",
            lambda: checks.rows_decisions_and_plans_are_the_oracles(chain, fuse=True),
        )

    def one_candidate(self) -> Iterator[Row]:
        """Sweep rows beyond the cache one candidate at a time, where sizes do not matter."""
        row = self.scale.long_row
        problem = instances.Knapsack(
            self._random.integers(row // 15, row // 8, 32), np.arange(32) + 5, row
        )
        for name, kind in (("int32", INT32), ("int64", INT64)):
            rate = self._cells_per_s(problem, kind, fuse=False)
            yield Row("one", f"{name}, {row} cells", rate / 1e9, "Gcell/s")
            moved = 2 * np.dtype(kind.dtype).itemsize + 1 / 8
            share = 100 * rate * moved / self.copy_bytes_per_s
            yield at_least("one", f"{name}, share of the copy", share, 60, "%")

    def fused(self) -> Iterator[Row]:
        """Sweep many small candidates, fused and not; goal 2x (field notes on the knapsack)."""
        problem = self._problem(self.scale.fused_row, self.scale.fused_size, 1000)
        for name, kind in (("int32", INT32), ("int64", INT64), ("float64", FLOAT64)):
            alone = self._cells_per_s(problem, kind, fuse=False)
            whole = knapsack_sweep.tiling_for(kind)
            for threads in sorted({whole.most_threads, whole.most_threads // 64 * 32 or 32}):
                tiling = Tiling(most_threads=threads, multiprocessors=whole.multiprocessors)
                rate = self._cells_per_s(problem, kind, fuse=True, tiling=tiling)
                what = f"{name}, {problem.capacity} cells, {threads} threads"
                yield Row("fused", what, rate / 1e9, "Gcell/s")
                what = f"{name}, over one candidate a pass, {threads} threads"
                if threads == whole.most_threads and kind is not FLOAT64:
                    yield at_least("fused", what, rate / alone, 2)
                else:
                    yield Row("fused", what, rate / alone, "x")

    def break_even(self) -> Iterator[Row]:
        """Solve one capacity from arrays to mask on both, wall time, ever larger."""
        even: dict[str, int | None] = {}
        for most_gain, name in ((1000, "int32"), (2**40, "int64")):
            even[name] = None
            for cells in self.scale.ladder:
                n = self.scale.ladder_items
                problem = self._problem(cells, 2 * cells // n, most_gain, n)
                device = _seconds(partial(knapsack.solve_one, *problem), self.scale.rounds, 1)
                on_cpu = partial(dense.solve_one, *problem, arena_limit_bytes=ARENA)
                cpu = _seconds(on_cpu, self.scale.rounds, 1)
                what = f"{name}, {problem.sizes.size} x {cells}: CPU's time over the device's"
                yield Row("even", what, cpu / device, "x")
                yield Row("even", f"{name}, {problem.sizes.size} x {cells}", device * 1e3, "ms")
                if cpu > device and even[name] is None:
                    even[name] = problem.sizes.size * cells
            what = f"{name}, cells from which the device is faster (0: none tried)"
            yield Row("even", what, even[name] or 0, "cells")

    def batch(self) -> Iterator[Row]:
        """Solve many small problems side by side, against the CPU one after the other."""
        cells, n = self.scale.batch_row, self.scale.ladder_items
        problems = [self._problem(cells, 2 * cells // n, 1000, n) for _ in range(self.scale.batch)]
        batch = [knapsack.Candidates(*problem) for problem in problems]
        device = _seconds(lambda: knapsack.solve_batch(batch), self.scale.rounds, 1)
        cpu = _seconds(lambda: [dense.solve_one(*problem) for problem in problems], 1, 1)
        what = f"{len(batch)} problems of {n} x {cells}"
        yield Row("batch", f"{what}, each", device / len(batch) * 1e6, "us")
        yield Row("batch", f"{what}: CPU's time over the device's", cpu / device, "x")

    def chains(self) -> Iterator[Row]:
        """Plan a chain alone, one block at a time, and under many budgets at once."""
        chain = self._chain(self.scale.slots, self.scale.blocks)
        for scale in (1, 1 << 20):
            yield from self._chain_sweeps(chain._replace(extra=chain.extra * scale))
        oracle = _seconds(lambda: _oracle(chain), 1, 1)
        device = _seconds(lambda: ceiling.solve(chain), self.scale.rounds, 1)
        yield Row("ceiling", "the CPU's two loops over the device", oracle / device, "x")
        room = self.scale.slots // (4 * self.scale.budgets)
        frontier = checks.under_budgets(chain, [-k * room for k in range(self.scale.budgets)])
        together = _seconds(lambda: ceiling.solve_batch(frontier), self.scale.rounds, 1)
        what = f"{len(frontier)} budgets at once, each over one alone"
        yield Row("ceiling", what, together / len(frontier) / device, "x")

    def _chain_sweeps(self, chain: ceiling.Chain) -> Iterator[Row]:
        slots = slotted(chain, 1)
        assert slots is not None
        updates = float((np.diff(slots.offsets) * slots.live[1:]).sum())
        for fuse, name in ((False, "one block a pass"), (True, "fused")):
            tables = chains_tabled([slots], fuse=fuse)
            with on_device():
                swept = ceiling_sweep.prepared([slots], tables, watch(None, None))
                seconds = _seconds(partial(ceiling_sweep.run, swept), self.scale.rounds, 1)
            cell = np.dtype(tables.dtype).name
            what = f"{cell}, {slots.blocks} blocks, {slots.cells} slots, {name}"
            yield Row("ceiling", what, seconds * 1e3, "ms")
            yield Row("ceiling", f"{what}: options x slots", updates / seconds / 1e9, "G/s")

    def traceback(self) -> Iterator[Row]:
        """Walk back on the device: one answer, and a thousand together."""
        problem = self._problem(self.scale.checked_row, self.scale.fused_size, 1000)
        curve = knapsack.solve_all(*problem)
        for count in (1, 1000):
            rooms = np.linspace(problem.capacity // 2, problem.capacity, count).astype(int).tolist()
            seconds = _seconds(partial(curve.traces, rooms), self.scale.rounds, 1)
            what = f"{count} answers, {problem.sizes.size} candidates"
            yield Row("trace", what, seconds * 1e3, "ms")

    def _problem(
        self, cells: int, size: int, most_gain: int, n: int | None = None
    ) -> instances.Knapsack:
        """Return candidates of this mean size, of which about two thirds fit."""
        n = n or max(3 * cells // (2 * size), 2)
        sizes = self._random.integers(max(size // 2, 1), size * 3 // 2 + 1, n)
        return instances.Knapsack(sizes, self._random.integers(1, most_gain, n), cells)

    def _chain(self, slots: int, blocks: int) -> ceiling.Chain:
        """Return blocks of eight options each, of which about a third fits as it likes best."""
        count = 8 * blocks
        most = max(6 * slots // blocks, 2)
        retained = self._random.integers(0, most, count)
        ceilings = slots - 1 - self._random.integers(0, most, count)
        extra = (most - retained) * self._random.integers(50, 150, count)
        return ceiling.Chain(8 * np.arange(blocks + 1), retained, extra, ceilings)

    def _cells_per_s(
        self,
        problem: instances.Knapsack,
        kind: CellType,
        *,
        fuse: bool,
        tiling: Tiling | None = None,
    ) -> float:
        whole = tiling or knapsack_sweep.tiling_for(kind)
        items = dense_items.reduced(problem.sizes, problem.gains, problem.capacity, 1)
        used = Tiling(
            most_threads=whole.most_threads, multiprocessors=whole.multiprocessors, fuse=fuse
        )
        tables = tabled([for_all(items, kind)], kind, used)
        with on_device():
            swept = knapsack_sweep.prepared(tables, watch(None, None))
            seconds = _seconds(lambda: knapsack_sweep.run(swept), self.scale.rounds, 1)
        return sum(step.cells for step in tables.steps) / seconds


def _seconds(work: Callable[[], object], rounds: int, warm: int = 0) -> float:
    for _ in range(warm):
        work()
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return median(taken)


def _sent_by_numba(swept: knapsack_sweep.Swept) -> None:
    """Send the steps of ``knapsack_sweep.run`` by numba's own launches."""
    kernel, tables = knapsack_kernels.sweep_one, swept.tables
    uploaded = map(cuda.to_device, (tables.rows, tables.gains, tables.before, tables.groups))
    on_device = swept.cells, swept.bits, *uploaded
    for number, step in enumerate(tables.steps):
        configured = kernel[(step.one_blocks, 1), knapsack_kernels.THREADS_OF_ONE]
        configured(*on_device, number, tables.least, swept.overflows)
    cuda.synchronize()


def _same(what: str, check: Callable[[], object]) -> Row:
    try:
        check()
    except AssertionError:
        return Row("same", what, 0, "identity", "= CPU", reached=False)
    return Row("same", what, 1, "identity", "= CPU", reached=True)


def _oracle(chain: ceiling.Chain) -> list[int]:
    most = int(chain.ceiling.max()) + int(chain.retained.max())
    row, decisions = oracles.ceiling_rows_by_dense_dp(*chain, most)
    return oracles.ceiling_plan_of_rows(chain.offsets, chain.retained, row, decisions)
