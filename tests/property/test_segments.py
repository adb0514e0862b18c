"""The chain with segments against all schedules of short chains, and plain loops on long ones."""

from collections.abc import Iterable

import numpy as np
import pytest
from tests import oracle_segments as oracle

from haversack_kernels import segments
from haversack_kernels.segments_columns import checked, kinds, rounded
from haversack_kernels.segments_least import ranges

Counts = tuple[int, ...]


def random_chain(seed: int, counts: Counts) -> oracle.Chain:
    """Draw columns for blocks of so many options each, with small or large numbers."""
    random = np.random.default_rng(seed)
    blocks, options = len(counts), sum(counts)
    most, dear = int(random.choice([3, 12, 100])), int(random.choice([3, 50, 2**40]))
    retained, forward, backward = (random.integers(0, most, options) for _ in range(3))
    plain, boundary, forward_base, backward_base = (
        random.integers(0, most, blocks) for _ in range(4)
    )
    return oracle.Chain(
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        retained=retained,
        forward_peak=retained + forward,
        backward_peak=retained + backward,
        extra=random.integers(0, dear, options),
        inside=random.random(options) < 0.8,
        plain_peak=boundary + plain,
        plain_time=random.integers(0, dear, blocks),
        boundary=boundary,
        gathered=random.integers(0, most, blocks) * random.integers(0, 2),
        forward_base=forward_base,
        backward_base=backward_base,
    )


def long_chain(seed: int) -> oracle.Chain:
    """Draw a chain of 8 to 24 blocks of one to three kinds, or all different."""
    random = np.random.default_rng(seed)
    blocks, options = int(random.integers(8, 25)), int(random.integers(1, 4))
    kind = np.arange(blocks) if seed % 4 == 0 else random.integers(0, seed % 4, blocks)

    def column(most: int, each: int = 1) -> oracle.Int64:
        return random.integers(0, most, (blocks, each))[kind].ravel()

    retained, boundary, dear = column(30, options), column(9), int(random.choice([3, 100]))
    return oracle.Chain(
        offsets=np.arange(blocks + 1) * options,
        retained=retained,
        forward_peak=retained + column(9, options),
        backward_peak=retained + column(20, options),
        extra=column(dear, options),
        inside=column(5, options) > 0,
        plain_peak=boundary + column(9),
        plain_time=column(dear),
        boundary=boundary,
        gathered=column(4),
        forward_base=random.integers(0, 20, blocks),
        backward_base=column(20) if seed % 3 else random.integers(0, 20, blocks),
    )


def budgets(outcomes: oracle.Outcomes) -> Iterable[int]:
    """Return slots below, at and between the peaks of all schedules, and above."""
    peaks = np.unique(outcomes.peak)
    return {int(peaks[0]) - 1, *peaks[:: max(peaks.size // 5, 1)].tolist(), int(peaks[-1]) + 1}


def program_of(schedule: segments.Schedule) -> oracle.Program:
    def read(node: object) -> oracle.Node:
        if isinstance(node, segments.Block):
            return oracle.Block(*node)
        assert isinstance(node, segments.Segment)
        return oracle.Segment(node.first, node.last, tuple(map(read, node.children)))

    return oracle.execute(tuple(map(read, segments.tree(schedule.nodes))))


def check(chain: oracle.Chain, unit: int, *, tails: bool) -> None:
    """Hold the answer for several budgets to the best of all schedules, and execute it."""
    outcomes = oracle.all_schedules(chain, unit, tails=tails)
    for slots in budgets(outcomes):
        budget = slots * unit + unit - 1
        schedule = segments.solve(segments.Chain(*chain), budget, unit=unit, refine=False)
        best = outcomes.best(slots)
        assert (schedule.extra if schedule.feasible else -1) == best
        if schedule.feasible:
            program = program_of(schedule)
            assert oracle.extra_of(chain, program) == schedule.extra
            assert oracle.peak_of(chain, program) == schedule.peak <= budget
            assert oracle.peak_of(chain, program, unit) <= slots
            assert all(chain.inside[option] for option in options_inside(schedule))


def options_inside(schedule: segments.Schedule) -> list[int]:
    nodes = schedule.nodes
    return list(nodes.option[(nodes.parent >= 0) & (nodes.option >= 0)])


# Every tree of the model, also those that end a segment where the one around it ends.
@pytest.mark.parametrize("counts", [(3,), (2, 3), (2, 1, 2), (3, 2, 1), (1, 2, 1, 1)])
@pytest.mark.parametrize("seeds", [range(0, 20), range(20, 40)])
def test_it_equals_the_best_of_all_schedules_at_every_budget(counts: Counts, seeds: range) -> None:
    for seed in seeds:
        chain = random_chain(seed, counts)
        check(chain, 1, tails=True)
        check(chain, 2 + seed % 5, tails=True)


@pytest.mark.parametrize(
    ("counts", "seeds"),
    [
        ((1, 1, 1, 1, 1), range(60)),
        ((2, 1, 2, 1, 1), range(40)),
        ((1, 1, 1, 1, 1, 1), range(60)),
    ],
)
def test_longer_chains_equal_the_best_of_all_schedules(counts: Counts, seeds: range) -> None:
    for seed in seeds:
        check(random_chain(seed, counts), 1 + seed % 4, tails=False)


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(2, 1, 2, 1, 1, 1), (1,) * 7, (1,) * 8])
def test_the_longest_chains_that_can_be_enumerated_equal_the_best(counts: Counts) -> None:
    for seed in range(40):
        check(random_chain(seed, counts), 1 + seed % 3, tails=False)


@pytest.mark.parametrize("seed", range(60))
def test_the_floor_divides_feasible_from_infeasible(seed: int) -> None:
    chain, unit = random_chain(seed, (2, 1, 2)), 1 + seed % 4
    floor = segments.floor(segments.Chain(*chain), unit=unit)
    assert floor == oracle.all_schedules(chain, unit).peak.min()
    for budget, feasible in ((floor * unit, True), (floor * unit - 1, False)):
        schedule = segments.solve(segments.Chain(*chain), budget, unit=unit, refine=False)
        assert schedule.feasible == feasible


@pytest.mark.parametrize("seed", range(60))
def test_refining_lies_between_the_best_in_bytes_and_the_best_in_slots(seed: int) -> None:
    chain, unit = random_chain(seed, (2, 1, 2)), 2 + seed % 9
    in_bytes, in_slots = oracle.all_schedules(chain), oracle.all_schedules(chain, unit)
    for budget in budgets(in_bytes):
        schedule = segments.solve(segments.Chain(*chain), budget, unit=unit)
        if not schedule.feasible:
            assert in_slots.best(budget // unit) == -1
            continue
        assert schedule.peak == oracle.peak_of(chain, program_of(schedule)) <= budget
        assert in_bytes.best(budget) <= schedule.extra
        assert in_slots.best(budget // unit) in (
            -1,
            max(in_slots.best(budget // unit), schedule.extra),
        )


@pytest.mark.parametrize("seed", range(60))
def test_no_schedule_in_bytes_is_below_the_lower_bound(seed: int) -> None:
    chain, unit = random_chain(seed, (1, 2, 1, 1)), 2 + seed % 7
    outcomes = oracle.all_schedules(chain, tails=False)
    for budget in budgets(outcomes):
        best = outcomes.best(budget)
        bound = segments.lower_bound(segments.Chain(*chain), budget, unit=unit)
        assert best == -1 or (bound is not None and bound <= best)
        if segments.lower_bound(segments.Chain(*chain), budget, unit=1) is None:
            assert best == -1


@pytest.mark.parametrize("seeds", [range(start, start + 10) for start in range(0, 60, 10)])
def test_long_chains_equal_plain_loops_at_every_budget(seeds: range) -> None:
    for seed in seeds:
        chain, unit, slots = long_chain(seed), 1 + seed % 3, 250
        expected = oracle.extra_by_plain_loops(chain, unit, slots)
        found = segments.frontier(segments.Chain(*chain), slots * unit, unit=unit)
        extra = np.full(slots + 1, -1)
        extra[found.slots] = found.extra
        extra[found.slots[-1] :] = found.extra[-1]
        assert extra.tolist() == expected.tolist()


def test_the_long_chains_above_do_share_rows_and_do_not() -> None:
    shared = []
    for seed in range(8):
        chain = checked(segments.Chain(*long_chain(seed)))
        table = rounded(chain, 1, 0)
        rows = ranges(table, kinds(table), np.zeros(1, np.uint8)).rows
        shared.append(rows <= chain.blocks * (chain.blocks + 1) // 2)
    assert shared == [False, True, True, True] * 2


@pytest.mark.parametrize("seed", range(40))
def test_a_larger_budget_is_never_worse(seed: int) -> None:
    chain, unit = segments.Chain(*long_chain(seed)), 1 + seed % 5
    floor = segments.floor(chain, unit=unit)
    extras = [
        segments.solve(chain, floor * unit + 9 * step, unit=unit, refine=seed % 2 == 0).extra
        for step in range(16)
    ]
    assert extras == sorted(extras, reverse=True)


@pytest.mark.parametrize("seed", range(30))
def test_long_schedules_hold_their_budget_when_executed(seed: int) -> None:
    chain, unit = long_chain(seed), 1 + seed % 3
    floor = segments.floor(segments.Chain(*chain), unit=unit)
    for slots in (floor, floor + 5, floor + 40):
        schedule = segments.solve(segments.Chain(*chain), slots * unit, unit=unit)
        program = program_of(schedule)
        assert oracle.peak_of(chain, program) == schedule.peak <= slots * unit
        assert oracle.extra_of(chain, program) == schedule.extra


@pytest.mark.parametrize("seed", range(30))
def test_sums_up_to_the_largest_allowed_are_exact(seed: int) -> None:
    chain = random_chain(seed, (2, 1, 2))
    factor = 2**58 // 1000
    bytes_columns = {
        name: getattr(chain, name) * factor
        for name in segments.Chain._fields
        if name not in ("offsets", "extra", "inside", "plain_time")
    }
    large = chain._replace(**bytes_columns)
    outcomes = oracle.all_schedules(chain)
    for slots in budgets(outcomes):
        schedule = segments.solve(segments.Chain(*large), slots * factor, unit=factor)
        assert (schedule.extra if schedule.feasible else -1) == outcomes.best(slots)
        if schedule.feasible:
            assert oracle.peak_of(large, program_of(schedule)) == schedule.peak
