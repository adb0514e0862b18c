"""More solvers that the exact core is held against, each with an instance ready to be solved."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from tests.bench.instances import Instance

TORCH_UNITS = 100_000
"""Units that the capacity is cut into; torch multiplies what it is given by 10,000 and rounds."""


def torch_in_units(instance: Instance, name: str) -> Callable[[], float]:
    """Return a call of one of torch's DPs with the capacity cut into units; it gives the gain."""
    import torch
    from torch._functorch._activation_checkpointing import knapsack

    torch.set_num_threads(1)
    solver: Any = getattr(knapsack, name)
    scale = TORCH_UNITS / 10_000 / instance.capacity
    memory = [size * scale for size in instance.sizes.tolist()]
    runtime = [float(gain) for gain in instance.gains.tolist()]
    return lambda: float(solver(memory, runtime, TORCH_UNITS / 10_000)[0])


class Found(NamedTuple):
    """Say what a peer found: its gain, the size of what it chose, and whether it calls it best."""

    gain: int
    size: int
    proven: bool


def highs(instance: Instance, seconds: float = 60.0) -> Callable[[], Found]:
    """Return a call of HiGHS with gap 0, which takes a size within 1e-6 for within."""
    from scipy import optimize

    gains, sizes = instance.gains.astype(float), instance.sizes[np.newaxis].astype(float)
    constraint = optimize.LinearConstraint(sizes, ub=float(instance.capacity))
    options = {"mip_rel_gap": 0.0, "time_limit": seconds}

    def solve() -> Found:
        with _silenced():
            found = optimize.milp(
                -gains,
                constraints=constraint,
                integrality=np.ones_like(gains),
                bounds=optimize.Bounds(0, 1),
                options=options,
            )
        if found.x is None:
            return Found(0, 0, False)
        chosen = found.x > 0.5
        gain, size = (int(column[chosen].sum()) for column in (instance.gains, instance.sizes))
        return Found(gain, size, bool(found.status == 0))

    return solve


@contextmanager
def _silenced() -> Iterator[None]:
    """Send what C code prints to nowhere: HiGHS has messages that no option turns off."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def cp_sat(columns: Any, budget: int) -> Callable[[], int]:
    """Return a call of CP-SAT on a chain without bases, on one thread; it gives the extra."""
    from ortools.sat.python import cp_model

    offsets, retained, forward, backward, extra = (column.tolist() for column in columns)

    def solve() -> int:
        model: Any = cp_model.CpModel()
        taken = [model.new_bool_var("") for _ in extra]
        present: Any = 0
        for start, end in pairwise(offsets):
            rows = range(start, end)
            model.add_exactly_one(taken[row] for row in rows)
            for peak in (forward, backward):
                model.add(present + sum(peak[row] * taken[row] for row in rows) <= budget)
            present = present + sum(retained[row] * taken[row] for row in rows)
        model.minimize(sum(cost * bit for cost, bit in zip(extra, taken, strict=True)))
        solver: Any = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_time_in_seconds = 20
        solver.solve(model)
        return int(solver.objective_value)

    return solve
