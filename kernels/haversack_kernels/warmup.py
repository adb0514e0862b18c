"""Compiles every kernel, or loads its code from disk, so that no request waits for it."""

import numpy as np

from haversack_kernels import (
    ceiling,
    dense,
    digest,
    dispatch,
    knapsack,
    quota,
    segments,
    slots,
    sweep,
)
from haversack_kernels._jit import Int64
from haversack_kernels.unsettled import left_by


def warm_up() -> None:
    """Solve small problems through every kernel: 44 s of CPU time once, then 1 s from disk."""
    numbers = np.arange(1, 41, dtype=np.int64) ** 2 % 41 + 1
    problem = knapsack.reduced(numbers, numbers + 3, 300)
    assert isinstance(problem, knapsack.Problem)
    left_by(problem, knapsack.solve(numbers, numbers + 3, 300))
    dispatch.explain_knapsack(numbers, numbers + 3, 300)
    quota.order_at(numbers, numbers + 3, 3)
    quota.find(numbers, numbers + 3, np.ones_like(numbers), 300, 400)
    _warm_up_chains(np.resize(numbers, 120))
    digest.row_sums(numbers.astype(np.uint64))
    dense.warm_up()
    segments.warm_up()


def _warm_up_chains(size: Int64) -> None:
    blocks = size.size // 2
    offsets = np.arange(0, size.size + 1, 2, dtype=np.int64)
    base = np.zeros(blocks, dtype=np.int64)
    columns, extra = (offsets, size, size, size), 42 - size
    budget = ceiling.floor(*columns, base, base).peak + 50
    ceiling.solve(*columns, extra, base + budget, base + budget)
    ceiling.frontier(*columns, extra, base, base, [budget, budget + 50])
    for scale in (1, 1 << 32):  # cells of 32 and of 64 bits
        slots.solve_all(*columns, extra * scale, base, base, budget).options(budget)
        slots.solve_one(sweep.Table(offsets, size, extra * scale, budget - size))
