from typing import Any

import numpy as np
import pytest
from tests.oracles import Chain

from haversack_kernels import slots, slots_sweep, sweep
from haversack_kernels._jit import Int64
from haversack_kernels.arena import ArenaLimitError
from haversack_kernels.errors import SolveCancelled


def column(*values: int) -> Int64:
    return np.array(values, dtype=np.int64)


# Two blocks, each with save (row 0, 2) and recompute (row 1, 3).
CHAIN = Chain(
    column(0, 2, 4),
    column(5, 1, 5, 1),
    column(6, 4, 6, 4),
    column(7, 8, 7, 8),
    column(0, 3, 0, 3),
    column(0, 0),
    column(0, 0),
)


def solve_all(budget: int, **options: Any) -> slots.Curve:
    return slots.solve_all(*CHAIN, budget, **options)


def test_one_sweep_answers_every_budget() -> None:
    curve = solve_all(20)
    assert [curve.extra(budget) for budget in (-1, 7, 8, 11, 12, 20)] == [None, None, 3, 3, 0, 0]
    assert curve.options(8).tolist() == [1, 2]
    assert curve.options(12).tolist() == [0, 2]
    assert curve.options(7).tolist() == [-1, -1]
    with pytest.raises(ValueError, match="budget 100 is above the one that was solved for"):
        curve.extra(100)


def test_sizes_are_rounded_up_to_slots_and_budgets_down() -> None:
    curve = solve_all(20, slots=7)
    assert curve.unit == 2  # all need 7: 13 more bytes and none, in 7 slots
    assert [curve.extra(budget) for budget in (8, 9, 12, 13)] == [None, 3, 3, 0]


def test_one_budget_needs_a_row_as_long_as_a_prefix_may_be() -> None:
    table = sweep.Table(*CHAIN[:2], CHAIN.extra, column(5, 4, 5, 4))
    found = slots.solve_one(table)
    assert found is not None
    assert (found[0].tolist(), found[1]) == ([0, 2], 0)
    assert slots.solve_one(table._replace(ceiling=column(5, 4, -1, -1))) is None


@pytest.mark.parametrize("scale", [1, 1 << 40])
def test_cells_are_as_wide_as_extras_need(scale: int) -> None:
    curve = slots.solve_all(*CHAIN[:4], CHAIN.extra * scale, *CHAIN[5:], 11)
    assert curve.extra(11) == 3 * scale


def test_too_little_memory_is_refused_with_slots_that_would_do() -> None:
    with pytest.raises(ArenaLimitError, match=r"slots=\d+ would do") as refused:
        slots.solve_all(*CHAIN, 1 << 30, slots=1 << 20, arena_limit_bytes=100_000)
    assert refused.value.needed_bytes > 100_000
    would_do = int(str(refused.value).split("slots=")[1].split()[0])
    slots.solve_all(*CHAIN, 1 << 30, slots=would_do, arena_limit_bytes=100_000)
    with pytest.raises(ArenaLimitError, match="no number of slots would do"):
        solve_all(20, arena_limit_bytes=100)


def test_a_flag_set_before_stops_before_the_first_block() -> None:
    with pytest.raises(SolveCancelled):
        solve_all(20, cancel=np.ones(1, dtype=np.uint8))


def test_the_sweep_reads_the_flag_before_every_block() -> None:
    rows, bits = np.zeros(128, np.int32), np.zeros(4, np.uint64)
    chain = slots_sweep.Chain(
        CHAIN.offsets, CHAIN.retained, CHAIN.retained, CHAIN.retained + 1, np.zeros(4, np.int32)
    )
    never, cancel = np.int32(9), np.ones(1, dtype=np.uint8)
    assert slots_sweep.sweep(chain, True, rows, bits, never, cancel) == slots_sweep.CANCELLED
    assert bits.sum() == 0


def test_nothing_to_solve_is_refused() -> None:
    empty: Any = column()
    with pytest.raises(ValueError, match="0 blocks in 9 slots"):
        slots.solve_all(column(0), empty, empty, empty, empty, empty, empty, 9, slots=9)
    with pytest.raises(ValueError, match="2 blocks in 0 slots"):
        solve_all(9, slots=0)
