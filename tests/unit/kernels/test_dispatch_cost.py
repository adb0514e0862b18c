import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.bench.instances import FAMILIES, make

from haversack_kernels import dispatch, dispatch_cost, knapsack, phases
from haversack_kernels.dense_items import reduced
from haversack_kernels.dense_memory import need_for_one
from haversack_kernels.dispatch_cost import Work
from haversack_kernels.unsettled import left_by

HARD = make("multiple strongly", 200, 100_000)
COLUMNS = HARD.sizes, HARD.gains, HARD.capacity


@pytest.mark.parametrize("dense_ns", [dispatch_cost.SOLVE_NS, 1e6, 3.3e7, 3e9])
def test_by_its_costs_dispatch_takes_at_most_twice_the_better_choice(dense_ns: float) -> None:
    """Whatever the core would need: a state less than it gets, one more, or more than it has."""
    device = dispatch.CPU._replace(one_ns=lambda work: dense_ns)

    def allowed(state_limit: int) -> int:
        why = dispatch.explain_knapsack(*COLUMNS, state_limit=state_limit, devices=[device])
        return int(why.reason.removeprefix("the core may look at ").partition(" ")[0])

    states = allowed(1 << 40)
    state = 1 + dispatch_cost.STATE_NS / dense_ns  # states are whole
    for needed in (1, states - 1, states, states + 1, 2 * states, 1 << 40):
        core_ns = dispatch_cost.core_ns(needed)
        handed_over_ns = dispatch_cost.core_ns(states) + dense_ns
        taken_ns = core_ns if needed <= states else handed_over_ns
        assert taken_ns <= 2 * min(core_ns, dense_ns) * state
    assert allowed(5000) == 5000


@pytest.mark.parametrize("n", [1, 100, 10_000, 1_000_000])
def test_a_quick_look_costs_less_than_any_dense_dp_on_the_cpu(n: int) -> None:
    quick = dispatch_cost.core_ns(phases.QUICK + phases.QUICK_PER_RUN * n)
    assert quick < dispatch_cost.cpu_one_ns(Work("int32", row=1, cells=0, rows=n, size_sum=0))


@pytest.mark.parametrize("family", FAMILIES)
def test_what_the_core_leaves_costs_no_more_than_was_foreseen(family: str) -> None:
    for n, capacity in ((60, 10_000), (1000, 100_000)):
        columns = make(family, n, capacity)[1:]
        problem = knapsack.reduced(*columns)
        assert isinstance(problem, knapsack.Problem)
        foreseen = dispatch_cost.cpu_one_ns(dispatch_cost.dense_work(problem, 1))
        for state_limit in (0, 5000):
            left = left_by(problem, knapsack.solve(*columns, state_limit=state_limit))
            after = dispatch_cost.cpu_one_ns(dispatch_cost.dense_work(left, 1))
            assert after <= 1.01 * foreseen  # runs are cut into more chunks at the break


@pytest.mark.parametrize("family", ["uncorrelated", "spanner", "transformer", "circle"])
@pytest.mark.parametrize(("n", "capacity"), [(200, 100_000), (1000, 50_000)])
def test_the_cells_of_a_dense_dp_are_known_beforehand(family: str, n: int, capacity: int) -> None:
    instance = make(family, n, capacity)
    problem = knapsack.reduced(*instance[1:])
    assert isinstance(problem, knapsack.Problem)
    words = need_for_one(reduced(*instance[1:], 1)).words
    assert dispatch_cost.dense_cells(problem) == pytest.approx(64 * words, rel=0.15)


EVEN = json.loads((Path(__file__).parents[2] / "golden" / "h200_break_even.json").read_text())


@pytest.mark.parametrize("row", EVEN["rows"], ids=lambda row: f"{row['kind']} {row['cells']}")
def test_the_choice_takes_at_most_twice_the_better_device_as_measured(row: dict[str, Any]) -> None:
    """The CPU's time over the device's, as one run on the card measured it."""
    n, cells = EVEN["candidates"], row["cells"]
    random = np.random.default_rng(n)
    sizes = random.integers(cells // n, 3 * cells // n + 1, n)
    most = {"int32": 1000, "int64": 2**40}[row["kind"]]
    problem = knapsack.reduced(sizes, random.integers(1, most, n), cells)
    assert isinstance(problem, knapsack.Problem)
    swept = dispatch_cost.dense_cells(problem)
    work = Work(row["kind"], cells, swept, rows=n, size_sum=float(sizes.sum()))
    takes_cpu = dispatch_cost.cpu_one_ns(work) <= dispatch_cost.cuda_one_ns(work)
    assert (row["cpu_over_device"] if takes_cpu else 1 / row["cpu_over_device"]) <= 2
