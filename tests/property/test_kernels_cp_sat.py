"""The ceiling kernel against CP-SAT, gap 0, on chains too long for all plans."""

from typing import Any

import numpy as np
import pytest
from tests.oracles import Chain

from haversack_kernels import ceiling


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(start, start + 100) for start in range(0, 1200, 100)])
def test_it_equals_cp_sat(seeds: range) -> None:
    for seed in seeds:
        random = np.random.default_rng(seed)
        blocks, options = int(random.integers(2, 14)), int(random.integers(2, 6))
        columns = [random.integers(0, 10**6, blocks * options) for _ in range(4)]
        bases = [random.integers(0, 10**6, blocks) for _ in range(2)]
        chain = Chain(np.arange(blocks + 1) * options, *columns, *bases)
        in_flight = int(random.integers(1, 4))
        floor = ceiling.floor(*chain[:4], *bases, in_flight=in_flight).peak
        budget = int(floor * (0.99 + random.random()))
        choice = ceiling.solve(
            *chain[:5], budget - bases[0], budget - bases[1], in_flight=in_flight
        )
        assert choice.proven
        extra = extra_by_cp_sat(chain, budget, in_flight)
        assert (choice.extra if choice.feasible else None) == extra


def extra_by_cp_sat(chain: Chain, budget: int, in_flight: int) -> int | None:
    cp_model: Any = pytest.importorskip("ortools.sat.python.cp_model", reason="the extra graph")
    model = cp_model.CpModel()
    taken = [model.new_bool_var("") for _ in range(chain.extra.size)]
    all_retained = sum(int(r) * x for r, x in zip(chain.retained, taken, strict=True))
    present = (in_flight - 1) * all_retained
    for block in range(chain.offsets.size - 1):
        rows = range(chain.offsets[block], chain.offsets[block + 1])
        model.add_exactly_one(taken[row] for row in rows)
        for base, peak in (
            (chain.forward_base, chain.forward_peak),
            (chain.backward_base, chain.backward_peak),
        ):
            model.add(
                present + sum(int(peak[row]) * taken[row] for row in rows)
                <= budget - int(base[block])
            )
        present = present + sum(int(chain.retained[row]) * taken[row] for row in rows)
    model.minimize(sum(int(x) * y for x, y in zip(chain.extra, taken, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    return round(solver.objective_value) if status == cp_model.OPTIMAL else None
