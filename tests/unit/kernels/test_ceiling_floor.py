import numpy as np
import pytest
from tests.oracles import floor_by_halving
from tests.unit.kernels.stopping import assert_stops_at_the_next_step

from haversack_kernels import ceiling, ceiling_floor, sweep
from haversack_kernels._jit import Int64, signals


def column(*values: int) -> Int64:
    return np.array(values, dtype=np.int64)


# Two blocks, each with save (row 0, 2) and recompute (row 1, 3).
OFFSETS = column(0, 2, 4)
RETAINED = column(5, 1, 5, 1)
FORWARD = column(6, 4, 6, 4)
BACKWARD = column(7, 8, 7, 8)
NO_BASE = column(0, 0)


def test_what_is_needed_at_least_is_counted_to_the_byte() -> None:
    """Bases and peaks as low as they may be: no start of a list may be above them."""
    lowest, retained = column(-(2**61), -(2**61)), column(2**60, 2**60)
    offsets, extra = column(0, 1, 2), column(0, 1)
    floor = ceiling.floor(offsets, retained, lowest, lowest, lowest, lowest)
    assert floor.peak == -(2**62) + 2**60
    found = ceiling.frontier(
        offsets, retained, lowest, lowest, extra, lowest, lowest, [floor.peak, floor.peak - 1]
    )
    assert [choice.feasible for choice in found] == [True, False]


def test_a_flag_set_before_stops_before_the_first_list() -> None:
    needs = ceiling_floor.Needs(OFFSETS, RETAINED, BACKWARD)
    stop = signals(np.ones(1, dtype=np.uint8))
    assert ceiling_floor.least_peak(needs, 0, stop) == (0, sweep.CANCELLED, 0)
    steps = np.zeros(1, dtype=np.int64)
    ceiling.floor(OFFSETS, RETAINED, FORWARD, BACKWARD, NO_BASE, NO_BASE, steps=steps)
    assert steps[0] == 2


def test_a_flag_set_while_searching_stops_before_the_next_list() -> None:
    needs, base = chain_of_extremes(2, blocks=4000), np.zeros(4000, dtype=np.int64)
    columns = needs.offsets, needs.retained, needs.need, needs.need, base, base
    assert_stops_at_the_next_step(
        lambda cancel, steps: ceiling.floor(*columns, in_flight=2, cancel=cancel, steps=steps)
    )


def chain_of_extremes(seed: int, blocks: int = 60) -> ceiling_floor.Needs:
    """Return a long chain in which an option that retains less needs far more."""
    random = np.random.default_rng(seed)
    options = int(random.integers(2, 9))
    retained = np.sort(random.integers(0, 1 << 20, (blocks, options)), axis=1)
    most = blocks << int(random.integers(14, 26))
    need = -np.sort(-random.integers(-most, most, (blocks, options)), axis=1)
    return ceiling_floor.Needs(np.arange(blocks + 1) * options, retained.ravel(), need.ravel())


@pytest.mark.parametrize("others", [0, 1, 2, 7])
def test_the_floor_of_a_long_chain_equals_halving_and_its_lists_stay_short(others: int) -> None:
    longest = 0
    for needs in map(chain_of_extremes, range(40)):
        stop = signals(None)
        least = ceiling_floor.least_peak(needs, others, stop)
        assert least.peak == floor_by_halving(*needs, others)
        count = np.diff(needs.offsets)
        behind = np.maximum(count[::-1].cumsum()[::-1] - count, 1)  # the options after a block
        assert least.states <= (count * (behind if others else 1)).sum()
        longest = max(longest, least.states // int(count.sum()))
        assert stop.steps[0] == count.size
    assert longest > 2 if others else longest == 1
