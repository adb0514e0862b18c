import numpy as np
import pytest
from tests.unit.kernels.hourglass import HOURGLASS, column, equal_blocks, solve

from haversack_kernels import ceiling, segments


@pytest.mark.parametrize(
    ("budget", "tree", "extra", "peak"),
    [
        # All saved: 13 + 5 + 20 at the loss.
        (38, (segments.Block(0, 0), segments.Block(1, 2), segments.Block(2, 4)), 0, 38),
        # Block 1 again: 13 + 2 + 20.
        (37, (segments.Block(0, 0), segments.Block(1, 3), segments.Block(2, 4)), 3, 35),
        # Both again, one by one: the 10 bytes between them stay, 10 + 2 + 20.
        (34, (segments.Block(0, 1), segments.Block(1, 3), segments.Block(2, 4)), 6, 32),
        # Both under one checkpoint: 2 + 20 at the loss, then 13 of block 0 + 17 of block 1.
        (
            31,
            (
                segments.Segment(0, 1, (segments.Block(0, 0), segments.Block(1, 2))),
                segments.Block(2, 4),
            ),
            8,
            30,
        ),
        # And block 0 yet again within it: 10 + 17.
        (
            29,
            (
                segments.Segment(0, 1, (segments.Block(0, 1), segments.Block(1, 2))),
                segments.Block(2, 4),
            ),
            11,
            27,
        ),
    ],
)
def test_a_segment_drops_the_large_boundary_that_recomputed_blocks_keep(
    budget: int, tree: segments.Tree, extra: int, peak: int
) -> None:
    schedule = solve(budget)
    assert schedule.feasible
    assert segments.tree(schedule.nodes) == tree
    assert (schedule.extra, schedule.peak) == (extra, peak)


def test_of_equal_costs_the_schedule_that_needs_less_is_chosen() -> None:
    as_dear = HOURGLASS._replace(extra=column(0, 4, 0, 4, 0))
    assert solve(34, as_dear).nodes.option.tolist() == [-1, 0, 2, 4]  # 30 bytes, the others 32


def test_of_equal_costs_and_needs_blocks_go_before_segments() -> None:
    # Saved or in segments, 18 are held at the loss, and a plain forward costs nothing.
    free = HOURGLASS._replace(plain_time=column(0, 0, 0), boundary=column(13, 18, 0))
    assert solve(38, free).nodes.option.tolist() == [0, 2, 4]


def test_segments_reach_below_the_floor_of_options_alone() -> None:
    no_base = column(0, 0, 0)
    blockwise = ceiling.floor(
        HOURGLASS.offsets,
        HOURGLASS.retained,
        HOURGLASS.forward_peak,
        HOURGLASS.backward_peak,
        no_base,
        no_base,
    )
    assert (blockwise.peak, segments.floor(HOURGLASS)) == (32, 27)
    assert not solve(26).feasible
    assert solve(26).nodes.first.size == 0


def test_an_option_not_allowed_inside_is_used_outside_only() -> None:
    only_outside = np.array([True, False, True, True, True])
    chain = HOURGLASS._replace(inside=only_outside)
    assert solve(34, chain).nodes.option.tolist() == [1, 3, 4]
    assert solve(30, chain).nodes.option.tolist() == [-1, 0, 2, 4]
    # Below 30 block 0 has to run again within the segment: a segment of its own does it.
    inner = segments.Segment(0, 0, (segments.Block(0, 0),))
    outer = segments.Segment(0, 1, (inner, segments.Block(1, 2)))
    assert segments.tree(solve(27, chain).nodes) == (outer, segments.Block(2, 4))


def test_a_block_without_an_option_inside_is_in_no_segment() -> None:
    chain = HOURGLASS._replace(inside=np.array([False, False, True, True, True]))
    assert segments.floor(chain) == 32
    assert solve(32, chain).nodes.option.tolist() == [1, 3, 4]


def test_a_segment_keeps_its_units_gathered_until_their_own_backward() -> None:
    # Bases contain the running block's unit: 3, 6 and 0 bytes.
    unit = column(3, 6, 0)
    chain = HOURGLASS._replace(gathered=unit, forward_base=unit, backward_base=unit)
    nodes = solve(31).nodes  # blocks 0 and 1 in a segment, both saved within
    schedule = segments.measured(chain, nodes)
    # Block 1 backward: base 6, unit 0 of 3 bytes, 13 held by block 0, 17.
    assert (schedule.peak, schedule.block, schedule.backward) == (39, 1, True)
    assert segments.measured(chain._replace(gathered=column(0, 0, 0)), nodes).peak == 36


def test_bases_of_backward_are_those_of_the_block_whose_turn_it_is() -> None:
    def peak(*backward_base: int, block_1_backward: int = 17) -> tuple[int, int]:
        changed = HOURGLASS._replace(
            backward_base=column(*backward_base),
            backward_peak=column(23, 23, block_1_backward, 17, 20),
        )
        schedule = segments.measured(changed, solve(31).nodes)
        return schedule.peak, schedule.block

    assert peak(0, 100, 0) == (100 + 13 + 17, 1)
    # While blocks 0 and 1 run again, block 1 is the next to run backward.
    assert peak(0, 100, 0, block_1_backward=0) == (100 + 2 + 13 + 5, 1)
    assert peak(50, 0, 0) == (50 + 23, 0)


def test_sizes_are_rounded_up_and_the_budget_down() -> None:
    # In slots of 10: the loss takes 2, block 1 holds 1, and block 0 holds 2 if saved, else 1.
    assert solve(50, unit=10).nodes.option.tolist() == [0, 2, 4]
    assert solve(49, unit=10).nodes.option.tolist() == [1, 2, 4]
    assert solve(40, unit=10).nodes.option.tolist() == [1, 2, 4]
    # The segment needs 3: its boundary and the loss, or block 0 again and block 1's 17.
    assert segments.floor(HOURGLASS, unit=10) == 3
    assert not solve(29, unit=10).feasible


def test_refining_takes_what_is_within_the_budget_in_bytes_though_not_in_slots() -> None:
    assert solve(39, unit=10).extra == 11
    assert solve(39, unit=10, refine=True).extra == 0  # 38 bytes, which take 5 slots
    assert solve(37, unit=10, refine=True).peak == 35
    # Feasible in bytes, not in slots; and in neither.
    assert solve(29, unit=10, refine=True).peak == 27
    assert not solve(26, unit=10, refine=True).feasible


def test_a_lower_bound_with_sizes_rounded_down_closes_or_leaves_a_gap() -> None:
    assert segments.lower_bound(HOURGLASS, 49, unit=10) == 0
    assert solve(49, unit=10).extra == 3
    assert segments.lower_bound(HOURGLASS, 34, unit=1) == solve(34).extra == 6
    assert segments.lower_bound(HOURGLASS, 26, unit=1) is None


def test_slots_prove_neither_a_least_nor_that_there_is_none() -> None:
    """What may be called optimal or infeasible: a bound that is met, the floor in bytes."""
    assert not solve(29, unit=10).feasible
    assert segments.floor(HOURGLASS) == 27
    assert solve(29).feasible
    assert solve(39, unit=10).extra > solve(39).extra
    assert segments.lower_bound(HOURGLASS, 39, unit=10) != solve(39, unit=10).extra
    for budget in range(20, 60):
        assert solve(budget).feasible == (budget >= segments.floor(HOURGLASS))
        if solve(budget).feasible:
            assert segments.lower_bound(HOURGLASS, budget, unit=1) == solve(budget).extra


def test_the_frontier_runs_from_the_floor_to_where_more_gains_nothing() -> None:
    found = segments.frontier(HOURGLASS, 100, unit=1)
    assert found.slots.tolist() == list(range(27, 39))
    assert found.extra.tolist() == [11] * 3 + [8] * 2 + [6] * 3 + [3] * 3 + [0]
    assert segments.frontier(HOURGLASS, 26, unit=1).slots.size == 0
    assert segments.frontier(HOURGLASS, 30, unit=1).slots.tolist() == [27, 28, 29, 30]


def test_a_schedule_is_shown_with_a_line_per_node() -> None:
    assert segments.show(solve(29).nodes).splitlines() == [
        "blocks 0 to 1 again:",
        "  block 0: 1",
        "  block 1: 2",
        "block 2: 4",
    ]


def test_a_chain_as_deep_as_it_is_long_is_traced_and_measured() -> None:
    blocks = 60
    chain = equal_blocks(blocks)._replace(retained=np.tile(column(1000, 1000), blocks))
    chain = chain._replace(inside=np.tile([True, False], blocks))
    floor = segments.floor(chain)
    schedule = solve(floor, chain)
    assert schedule.peak == floor
    depth = np.zeros(schedule.nodes.first.size, dtype=np.int64)
    for node, parent in enumerate(schedule.nodes.parent):
        depth[node] = 0 if parent < 0 else depth[parent] + 1
    assert depth.max() > 10
    assert len(segments.show(schedule.nodes).splitlines()) == schedule.nodes.first.size
    assert schedule.nodes.first.size <= 3 * blocks
