"""The ceiling kernels: dense slots against plain loops, lists, floors, budgets, stages."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
from tests.bench.chains import Columns, blocks_of_eight, budget_between
from tests.bench.kernels_peers import cp_sat
from tests.bench.paired import race
from tests.bench.table import Row, at_least
from tests.oracles import ceiling_by_dense_dp, floor_by_halving

from haversack_kernels import ceiling, ceiling_floor, ceiling_search, slots, sweep
from haversack_kernels._jit import signals
from haversack_kernels.ceiling_floor import Needs

SLOTS = 1 << 16
GOAL_MS = 20


def dense_slots() -> Iterator[Row]:
    """Hold 1000 blocks of 8 options in 65,536 slots against the two-loop oracle."""
    for cells, scale in (("int32", 1), ("int64", 1 << 20)):
        yield from _dense_slots(cells, scale)


def _dense_slots(cells: str, scale: int) -> Iterator[Row]:
    columns = blocks_of_eight(1000, jitter=0.03)
    budget, extra = budget_between(columns, 0.5), columns.extra * scale
    base = np.zeros(1000, dtype=np.int64)
    needs = np.maximum(columns.forward_peak, columns.backward_peak)
    table = sweep.Table(columns.offsets, columns.retained, extra, budget - needs)
    unit = -(-budget // SLOTS)
    in_slots = -(-columns.retained // unit)
    ceilings = (budget - needs) // unit
    found = slots.solve_one(table, slots=SLOTS)
    if found is None:
        raise ValueError("no plan in slots")
    times = race(
        {
            "one": lambda: slots.solve_one(table, slots=SLOTS),
            "all": lambda: slots.solve_all(*columns[:4], extra, base, base, budget, slots=SLOTS),
            "oracle": lambda: ceiling_by_dense_dp(
                columns.offsets, in_slots, extra, ceilings, SLOTS - 1
            ),
        },
        rounds=5,
    )
    what = f"1000 blocks, 8 options, 65536 slots, {cells}"
    yield Row("slots", f"{what}: two loops, no plan", times.ms("oracle"), "ms")
    for ours, text in (("one", "one budget and its plan"), ("all", "all budgets")):
        yield Row("slots", f"{what}: {text}", times.ms(ours), "ms")
        yield at_least("slots", f"{what}: two loops / {text}", times.ratio("oracle", ours), 3)


def lists() -> Iterator[Row]:
    """Show times, states and gaps of the lists by number of blocks, jitter and budget."""
    for blocks, jitter in ((34, 0.03), (200, 0.0), (200, 0.03), (1000, 0.0), (1000, 0.03)):
        columns = blocks_of_eight(blocks, jitter)
        for share in (0.1, 0.3, 0.5, 0.8):
            yield from _lists(columns, blocks, jitter, share)


def _lists(columns: Columns, blocks: int, jitter: float, share: float) -> Iterator[Row]:
    solve, found = _solver(columns, budget_between(columns, share)), list[ceiling_search.Found]()
    searched = ceiling_search.search

    def recorded(*arguments: Any) -> ceiling_search.Found | None:
        answer = searched(*arguments)
        found.extend([answer] if answer else [])
        return answer

    with patch.object(ceiling_search, "search", recorded):
        choice = solve()
    times = race({"lists": solve}, rounds=5)
    kind = "equal blocks" if not jitter else f"blocks with {jitter:.0%} jitter"
    what = f"{blocks} {kind}, budget at {share:.0%}"
    goal = f" (goal {GOAL_MS})" if blocks == 200 else ""
    yield Row("lists", f"{what}: lists{goal}", times.ms("lists"), "ms")
    yield Row("lists", f"{what}: states", found[0].states / 1000, "k")
    yield Row("lists", f"{what}: gap", 1e6 * (1 - choice.lower_bound / choice.extra), "ppm")


def floors() -> Iterator[Row]:
    """Hold the lists of the floor against halving the budget, as the oracle does."""
    for blocks, jitter in ((200, 0.0), (200, 0.03), (1000, 0.0), (1000, 0.03)):
        for microbatches in (1, 8):
            yield from _floor(blocks_of_eight(blocks, jitter), jitter, microbatches)


def _floor(columns: Columns, jitter: float, microbatches: int) -> Iterator[Row]:
    base = np.zeros(columns.offsets.size - 1, dtype=np.int64)
    need = np.maximum(columns.forward_peak, columns.backward_peak)
    needs, others, stop = Needs(*columns[:2], need), microbatches - 1, signals(None)
    times = race(
        {
            "floor": lambda: ceiling.floor(*columns[:4], base, base, in_flight=microbatches),
            "lists": lambda: ceiling_floor.least_peak(needs, others, stop),
            "halving": lambda: floor_by_halving(*needs, others),
        },
        rounds=9,
    )
    what = f"{base.size} blocks, {jitter:.0%} jitter, {microbatches} in flight"
    yield Row("floor", f"{what}: with checks and its plan", times.ms("floor"), "ms")
    yield Row("floor", f"{what}: lists", times.ms("lists"), "ms")
    yield Row("floor", f"{what}: halving / lists", times.ratio("halving", "lists"), "x")


def against_cp_sat() -> Iterator[Row]:
    """Hold small chains against CP-SAT, which proves the same plan."""
    for blocks, jitter in ((34, 0.0), (34, 0.03), (100, 0.03)):
        columns = blocks_of_eight(blocks, jitter)
        budget = budget_between(columns, 0.3)
        ours, theirs = _solver(columns, budget), cp_sat(columns, budget)
        if theirs() < ours().extra:
            raise ValueError("CP-SAT has a better plan")
        times = race({"lists": ours, "cp-sat": theirs}, rounds=3)
        what = f"{blocks} blocks, {jitter:.0%} jitter: CP-SAT / lists"
        yield Row("lists", what, times.ratio("cp-sat", "lists"), "x")


def _solver(columns: Columns, budget: int, in_flight: int = 1) -> Callable[[], ceiling.Choice]:
    capacity = np.full(columns.offsets.size - 1, budget)
    return lambda: ceiling.solve(*columns, capacity, capacity, in_flight=in_flight)


def budgets() -> Iterator[Row]:
    """Hold a frontier of 50 budgets in one sweep against 50 solves."""
    for blocks, jitter in ((34, 0.03), (80, 0.03), (200, 0.0), (200, 0.03)):
        yield from _budgets(blocks_of_eight(blocks, jitter), blocks, jitter)


def _budgets(columns: Columns, blocks: int, jitter: float) -> Iterator[Row]:
    base = np.zeros(blocks, dtype=np.int64)
    wanted = [budget_between(columns, share / 50) for share in range(1, 51)]
    singly = [_solver(columns, budget) for budget in wanted]
    times = race(
        {
            "frontier": lambda: ceiling.frontier(*columns, base, base, wanted),
            "singly": lambda: [solve() for solve in singly],
        },
        rounds=5,
    )
    what = f"{blocks} blocks, {jitter:.0%} jitter, 50 budgets"
    yield Row("budgets", f"{what}: in one sweep", times.ms("frontier"), "ms")
    yield Row("budgets", f"{what}: singly / in one", times.ratio("singly", "frontier"), "x")


def in_flight() -> Iterator[Row]:
    """Show stages with several microbatches in flight."""
    for blocks, microbatches in ((16, 4), (32, 2), (32, 8)):
        columns = blocks_of_eight(blocks, 0.03)
        base = np.zeros(blocks, dtype=np.int64)
        floor = ceiling.floor(*columns[:4], base, base, in_flight=microbatches).peak
        solve = _solver(columns, 2 * floor, microbatches)
        choice, times = solve(), race({"solve": solve}, rounds=5)
        what = f"{blocks} blocks, 3% jitter, {microbatches} in flight"
        yield Row("flight", what, times.ms("solve"), "ms")
        yield Row("flight", f"{what}: gap", 1e6 * (1 - choice.lower_bound / choice.extra), "ppm")
