"""Segments at their limits: memory, a flag that is set, threads, columns that are refused."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from tests.unit.kernels.hourglass import HOURGLASS, column, equal_blocks, solve

from haversack_kernels import segments
from haversack_kernels.arena import ArenaLimitError
from haversack_kernels.errors import SolveCancelled
from haversack_kernels.segments_columns import checked, kinds, rounded
from haversack_kernels.segments_least import enough, least_from, ranges
from haversack_kernels.segments_schedule import highest
from haversack_kernels.segments_table import fill, fill_first
from haversack_kernels.segments_trace import trace


def test_equal_blocks_with_equal_bases_share_rows() -> None:
    def rows(chain: segments.Chain) -> int:
        table = rounded(checked(chain), 1, 0)
        return ranges(table, kinds(table), np.zeros(1, dtype=np.uint8)).rows

    assert rows(equal_blocks(40)) == 1 + 40  # the row of no block, and one per length
    assert rows(equal_blocks(40, growing_base=1)) == 1 + 40 * 41 // 2


def test_a_thousand_equal_blocks_are_solved() -> None:
    chain = equal_blocks(1000)
    schedule = solve(500, chain)
    assert schedule.feasible
    assert schedule.peak <= 500
    assert (schedule.nodes.option < 0).any()


def test_a_table_above_the_limit_is_refused_with_a_unit_that_does() -> None:
    chain = equal_blocks(30, growing_base=1)
    with pytest.raises(ArenaLimitError, match="above the limit of 200000; unit=") as refused:
        solve(10**6, chain, arena_limit_bytes=200_000)
    assert refused.value.needed_bytes > 200_000
    assert refused.value.unit is not None
    assert solve(10**6, chain, arena_limit_bytes=200_000, unit=refused.value.unit).feasible
    with pytest.raises(ArenaLimitError, match="no unit would do") as never:
        solve(10**6, chain, arena_limit_bytes=1000)
    assert never.value.unit is None


def test_a_budget_beyond_what_saving_all_needs_makes_no_larger_table() -> None:
    assert solve(2**62, equal_blocks(30), arena_limit_bytes=200_000).extra == 0


def test_a_flag_set_before_stops_every_stage_at_its_first_range() -> None:
    cancel = np.ones(1, dtype=np.uint8)
    for start in (
        lambda: solve(38, cancel=cancel),
        lambda: segments.floor(HOURGLASS, cancel=cancel),
        lambda: segments.frontier(HOURGLASS, 38, unit=1, cancel=cancel),
        lambda: segments.lower_bound(HOURGLASS, 38, unit=1, cancel=cancel),
    ):
        with pytest.raises(SolveCancelled) as stopped:
            start()
        assert stopped.value.states == 0
    table = rounded(checked(HOURGLASS), 1, 0)
    known = ranges(table, kinds(table), np.zeros(1, dtype=np.uint8))
    cells = np.full((known.rows, 39), 77)
    assert fill(table, known, cells, cancel) == 0
    assert (cells[1:] == 77).all()
    best = fill_first(table, known, least_from(table, known.least), cells, cancel)
    assert best[0].min() == 2**63 - 1


def test_a_flag_set_while_solving_stops_at_the_next_range() -> None:
    blocks = 130
    cancel, done = np.zeros(1, dtype=np.uint8), []

    def run() -> None:
        with pytest.raises(SolveCancelled) as stopped:
            solve(2400, equal_blocks(blocks, growing_base=1), cancel=cancel)
        done.append(stopped.value.states)

    thread = Thread(target=run)
    thread.start()
    Event().wait(0.05)  # only lets it get under way: the outcome is the same without
    cancel[0] = 1
    thread.join()
    assert len(done) == 1
    assert done[0] <= blocks * (blocks + 1) // 2


def test_concurrent_solves_give_the_same_answers() -> None:
    budgets = [300, 400, 500, 600] * 2

    def extra(budget: int) -> int:
        return solve(budget, equal_blocks(40, growing_base=1)).extra

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(extra, budgets)) == list(map(extra, budgets))


def test_after_the_warm_up_nothing_is_left_to_compile() -> None:
    def compiled() -> list[int]:
        entries: tuple[Any, ...] = (ranges, least_from, enough, fill, fill_first, trace, highest)
        return [len(entry.signatures) for entry in entries]

    segments.warm_up()
    before = compiled()
    read_only = np.frombuffer(HOURGLASS.retained.tobytes(), dtype=np.int64)
    segments.measured(HOURGLASS, solve(30, HOURGLASS._replace(retained=read_only)).nodes)
    segments.lower_bound(equal_blocks(20), 200, unit=3)
    assert compiled() == before == [1] * 7


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"offsets": column(0)}, ValueError, "there is no block"),
        ({"offsets": column(1, 5)}, ValueError, "do not start at 0"),
        ({"offsets": column(0, 2, 2, 5)}, ValueError, "block 1 has no option"),
        ({"offsets": column(0, 2, 4, 6)}, ValueError, "retained has 5 values for 6 options"),
        ({"extra": column(0, 4, 0, -4, 0)}, ValueError, "extra\\[3\\] is negative"),
        ({"backward_base": column(0, -1, 0)}, ValueError, "backward_base\\[1\\] is negative"),
        ({"boundary": column(0, 0)}, ValueError, "boundary has 2 values for 3 blocks"),
        ({"inside": np.array([True])}, ValueError, "inside has 1 values for 5 options"),
        ({"inside": column(1, 1, 1, 1, 1)}, TypeError, "inside is not a one-dimensional bool"),
        ({"plain_time": np.zeros(3)}, TypeError, "plain_time is not a one-dimensional int64"),
        ({"retained": column(2**59, 0, 1, 1, 0)}, OverflowError, "retained sums up to"),
        ({"gathered": column(2**59, 0, 1)}, OverflowError, "gathered sums up to"),
        ({"plain_peak": column(2**60, 0, 1)}, OverflowError, "plain_peak reaches beyond 2"),
        ({"plain_time": column(2**59, 0, 0)}, OverflowError, "times may add up to"),
    ],
)
def test_bad_columns_are_refused_by_name(
    changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        solve(38, HOURGLASS._replace(**changed))


@pytest.mark.parametrize("unit", [0, -1, 2**60])
def test_a_unit_out_of_range_is_refused(unit: int) -> None:
    with pytest.raises(ValueError, match=f"unit is {unit}"):
        solve(38, unit=unit)
