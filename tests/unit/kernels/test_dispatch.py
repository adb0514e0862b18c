from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any, NoReturn

import numpy as np
import pytest
from tests.bench.instances import make
from tests.oracles import knapsack_by_dense_dp

from haversack_kernels import ceiling, dense, dispatch, knapsack, phases
from haversack_kernels._jit import Int64
from haversack_kernels.arena import ArenaLimitError
from haversack_kernels.devices import Device
from haversack_kernels.dispatch import Explanation
from haversack_kernels.dispatch_cost import Work
from haversack_kernels.errors import DeviceFailedError, SolveCancelled

HARD = make("multiple strongly", 200, 100_000)
COLUMNS = HARD.sizes, HARD.gains, HARD.capacity


def eager(device: Device, cell_ns: float = 0.02) -> Device:
    """Believe that cells take next to nothing, so that the core hands over soon."""
    return device._replace(
        one_ns=lambda work: cell_ns * work.cells, chain_ns=lambda work: cell_ns * work.cells
    )


def endless(n: int, scale: int) -> tuple[Int64, Int64, int]:
    """Circle sizes in multiples that are no common divisor: too much for the core and for cells."""
    sizes, gains = make("circle", n, 1 << 20)[1:3]
    return sizes * scale + 1, gains * scale, int(sizes.sum()) * scale // 3


def test_what_all_fits_needs_no_search() -> None:
    selection, why = dispatch.solve_knapsack(np.array([1, 2]), np.array([3, 4]), 3)
    assert (selection.gain, why.reason) == (7, "all candidates fit")
    assert dispatch.explain_knapsack(np.array([1, 2]), np.array([3, 4]), 3) == why


def test_an_easy_instance_is_left_to_the_core() -> None:
    instance = make("transformer, jittered", 300, 100_000)
    selection, why = dispatch.solve_knapsack(*instance[1:])
    assert selection.proven
    assert (why.algorithm, why.cells, why.device) == ("core", "", "cpu")


@pytest.mark.parametrize(("scale", "cells"), [(1, "int32"), (1 << 32, "int64")])
def test_a_hard_instance_is_handed_over_to_a_dense_dp(scale: int, cells: str) -> None:
    sizes, gains, capacity = COLUMNS
    gains = gains * scale + np.arange(gains.size) % 2  # no common divisor
    devices = [eager(dispatch.CPU)]
    selection, why = dispatch.solve_knapsack(sizes, gains, capacity, devices=devices)
    assert selection.proven
    assert selection.gain == knapsack_by_dense_dp(sizes, gains, capacity)
    assert selection.gain == gains[selection.mask].sum()
    planned = dispatch.explain_knapsack(sizes, gains, capacity, devices=devices)
    assert why.reason.startswith(f"{planned.reason}; bounds left it ")
    assert (why.algorithm, why.device) == (planned.algorithm, planned.device)
    assert (why.algorithm, why.cells, why.device) == ("core, then dense", cells, "cpu")
    assert "states, then come" in why.reason


def test_a_flag_set_before_the_dense_dp_stops_the_core_at_its_next_step() -> None:
    cancel = np.zeros(1, dtype=np.uint8)

    def cancelled_when_asked(work: Work) -> float:
        cancel[0] = 1
        return 1e9

    devices = [dispatch.CPU._replace(one_ns=cancelled_when_asked)]
    with pytest.raises(SolveCancelled) as stopped:
        dispatch.solve_knapsack(*COLUMNS, devices=devices, cancel=cancel)
    quick = knapsack.solve(*COLUMNS, state_limit=phases.QUICK + phases.QUICK_PER_RUN * 200)
    assert not quick.proven
    assert 0 < stopped.value.states <= phases.QUICK + phases.QUICK_PER_RUN * 200


def test_the_cheapest_device_that_has_the_memory_is_used() -> None:
    asked = []

    def one(sizes: Int64, gains: Int64, capacity: int, **options: Any) -> dense.Chosen:
        asked.append(options)
        return dense.solve_one(sizes, gains, capacity, **options)

    fast = eager(dispatch.CPU, 0.001)._replace(name="fast", one=one)
    small = fast._replace(name="small", one_ns=lambda work: inf)
    slow_to_start = fast._replace(name="slow to start", one_ns=lambda work: 1e9)
    devices = [small, slow_to_start, dispatch.CPU, fast]
    selection, why = dispatch.solve_knapsack(*COLUMNS, devices=devices)
    assert why.device == "fast"
    assert "small: too little memory, slow to start: 1000.0 ms, cpu: " in why.reason
    assert asked == [{"unit": 1, "cancel": None}]
    assert selection.gain == dense.solve_one(*COLUMNS).gain


def test_little_memory_is_spared_by_halving() -> None:
    _, sizes, gains, capacity = make("multiple strongly", 500, 100_000)
    gains = gains * (1 << 33) + np.arange(gains.size) % 2  # two rows of int64 are 1.6 MB
    spare = eager(dispatch.cpu(memory_bytes=2_800_000), 0.001)
    selection, why = dispatch.solve_knapsack(sizes, gains, capacity, devices=[spare])
    assert why.algorithm == "core, then dense"
    assert selection.gain == dense.solve_one(sizes, gains, capacity).gain
    with pytest.raises(ArenaLimitError):
        dense.solve_one(sizes, gains, capacity, arena_limit_bytes=2_800_000)


def test_without_a_dense_dp_in_time_the_core_has_all_its_states() -> None:
    columns = endless(300, 1 << 40)
    assert dispatch.explain_knapsack(*columns).algorithm == "core"
    selection, why = dispatch.solve_knapsack(*columns, state_limit=1 << 17)
    alone = knapsack.solve(*columns, state_limit=1 << 17)
    assert not selection.proven
    assert (selection.gain, selection.upper_bound) == (alone.gain, alone.upper_bound)
    assert "less than rounding would lose" in why.reason


def test_a_coarser_unit_is_tried_where_it_can_close_the_gap() -> None:
    columns = endless(300, 1 << 40)
    nothing = Explanation("core", "", "cpu", "a quick look was allowed")
    assert dispatch.solve_knapsack(*columns, state_limit=0)[1] == nothing
    quick = eager(dispatch.CPU, 1e-9)
    selection, why = dispatch.solve_knapsack(*columns, state_limit=20_000, devices=[quick])
    alone = knapsack.solve(*columns, state_limit=20_000)
    assert why.algorithm == "core, then dense"
    assert "in units of" in why.reason
    assert alone.gain <= selection.gain <= selection.upper_bound == alone.upper_bound
    assert columns[0][selection.mask].sum() <= columns[2]


def test_a_flag_set_before_stops_everything() -> None:
    with pytest.raises(SolveCancelled):
        dispatch.solve_knapsack(*COLUMNS, cancel=np.ones(1, dtype=np.uint8))


def chain(blocks: int) -> dict[str, Any]:
    random = np.random.default_rng(blocks)
    columns = random.integers(0, 1000, (4, 4 * blocks))
    names = ("retained", "forward_peak", "backward_peak", "extra")
    capacity = np.full(blocks, blocks * 250)
    return {
        "offsets": np.arange(blocks + 1) * 4,
        **dict(zip(names, columns, strict=True)),
        "forward_capacity": capacity,
        "backward_capacity": capacity,
    }


def test_lists_that_prove_their_plan_need_no_slots() -> None:
    choice, why = dispatch.solve_ceiling(**chain(20))
    assert choice.extra == ceiling.solve(**chain(20)).extra
    assert (why.algorithm, why.device, why.reason) == ("lists", "cpu", "proven by bounds")


def test_past_their_limit_slots_come_closer_and_the_bound_stays() -> None:
    columns = chain(60)
    exact, alone = ceiling.solve(**columns), ceiling.solve(**columns, state_limit=100)
    quick = eager(dispatch.CPU, 1e-9)
    choice, why = dispatch.solve_ceiling(**columns, state_limit=100, devices=[quick])
    assert not alone.proven
    assert (why.algorithm, why.device) == ("lists, then slots", "cpu")
    assert alone.lower_bound == choice.lower_bound <= exact.extra <= choice.extra < alone.extra
    assert columns["extra"][choice.options].sum() == choice.extra


def test_slots_that_would_take_too_long_are_left_out() -> None:
    choice, why = dispatch.solve_ceiling(**chain(60), state_limit=100)
    assert not choice.proven
    assert "less than rounding would cost" in why.reason
    capacity = np.full(60, 30_000)
    columns = {**chain(60), "forward_capacity": capacity, "backward_capacity": capacity}
    choice, why = dispatch.solve_ceiling(**columns, in_flight=2, state_limit=100)
    assert not choice.proven
    assert why.reason.startswith("several in flight")


def failing(device: Device) -> tuple[Device, list[str]]:
    """Return a device that is far cheaper than the others and fails, and what it was asked."""
    asked = []

    def one(*_: object, **options: Any) -> NoReturn:
        asked.append("one")
        raise DeviceFailedError("CUDA_ERROR_ILLEGAL_ADDRESS")

    def chain(*_: object, **options: Any) -> NoReturn:
        asked.append("chain")
        raise DeviceFailedError("CUDA_ERROR_ILLEGAL_ADDRESS")

    return eager(device, 1e-9)._replace(name="fails", one=one, chain=chain), asked


def test_when_a_device_fails_the_others_solve_and_the_answer_says_so() -> None:
    device, asked = failing(dispatch.CPU)
    selection, why = dispatch.solve_knapsack(*COLUMNS, devices=[eager(dispatch.CPU), device])
    assert asked == ["one"]
    assert selection.gain == dense.solve_one(*COLUMNS).gain
    assert (why.algorithm, why.device) == ("core, then dense", "cpu")
    assert why.reason.startswith("fails failed (CUDA_ERROR_ILLEGAL_ADDRESS); the core may look")


def test_when_every_device_fails_the_core_has_its_states() -> None:
    device, asked = failing(dispatch.CPU)
    selection, why = dispatch.solve_knapsack(*COLUMNS, devices=[device], state_limit=1 << 17)
    assert asked == ["one"]
    assert selection.gain <= dense.solve_one(*COLUMNS).gain <= selection.upper_bound
    assert (why.algorithm, why.device) == ("core", "cpu")


def test_a_coarser_unit_is_tried_elsewhere_when_a_device_fails() -> None:
    device, asked = failing(dispatch.CPU)
    devices = [device, eager(dispatch.CPU, 1e-9)._replace(name="works")]
    columns = endless(300, 1 << 40)
    selection, why = dispatch.solve_knapsack(*columns, state_limit=20_000, devices=devices)
    assert asked == ["one"]
    assert (why.algorithm, why.device) == ("core, then dense", "works")
    assert columns[0][selection.mask].sum() <= columns[2]


def test_slots_are_tried_elsewhere_when_a_device_fails() -> None:
    device, asked = failing(dispatch.CPU)
    devices = [device, eager(dispatch.CPU, 1e-8)]
    choice, why = dispatch.solve_ceiling(**chain(60), state_limit=100, devices=devices)
    assert asked == ["chain"]
    assert (why.algorithm, why.device) == ("lists, then slots", "cpu")
    assert why.reason.startswith("fails failed (CUDA_ERROR_ILLEGAL_ADDRESS); after 100 states")
    assert choice.lower_bound <= ceiling.solve(**chain(60)).extra <= choice.extra


def test_extras_that_no_cell_holds_are_left_to_the_lists() -> None:
    columns = chain(60)
    columns["extra"] = columns["extra"] << 47
    choice, why = dispatch.solve_ceiling(
        **columns, state_limit=100, devices=[eager(dispatch.CPU, 1e-9)]
    )
    assert not choice.proven
    assert (why.algorithm, why.reason.split()[:3]) == ("lists", ["no", "cell", "of"])


def test_the_cells_of_slots_are_named_as_they_are() -> None:
    columns, quick = chain(60), [eager(dispatch.CPU, 1e-9)]
    assert dispatch.solve_ceiling(**columns, state_limit=100, devices=quick)[1].cells == "int32"
    columns["extra"] = columns["extra"] << 30
    assert dispatch.solve_ceiling(**columns, state_limit=100, devices=quick)[1].cells == "int64"


def test_hand_overs_side_by_side_give_what_they_give_alone() -> None:
    sizes, gains, capacity = COLUMNS
    capacities = [capacity - 1_000 * less for less in range(8)]

    def at(room: int) -> tuple[knapsack.Selection, Explanation]:
        return dispatch.solve_knapsack(sizes, gains, room, devices=[eager(dispatch.CPU)])

    alone = list(map(at, capacities))
    assert [why.algorithm for _, why in alone].count("core, then dense") >= 4
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(at, capacities))
    for (one, why), (other, same) in zip(alone, together, strict=True):
        assert (one[1:], why) == (other[1:], same)
        assert (one.mask == other.mask).all()


def test_slots_side_by_side_give_what_they_give_alone() -> None:
    def at(blocks: int) -> tuple[ceiling.Choice, Explanation]:
        quick = [eager(dispatch.CPU, 1e-8)]
        return dispatch.solve_ceiling(**chain(blocks), state_limit=100, devices=quick)

    alone = list(map(at, range(60, 68)))
    assert [why.algorithm for _, why in alone].count("lists, then slots") >= 4
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(at, range(60, 68)))
    for (one, why), (other, same) in zip(alone, together, strict=True):
        assert (one[1:], why) == (other[1:], same)
        assert (one.options == other.options).all()
