"""Compiles every kernel, or loads its code from disk, so that no request waits for it."""

import numpy as np

from haversack_kernels import ceiling, knapsack


def warm_up() -> None:
    """Solve small problems through every compiled function: 10 s once, then 0.4 s from disk."""
    numbers = np.arange(1, 41, dtype=np.int64) ** 2 % 41 + 1
    knapsack.solve(numbers, numbers + 3, 300)
    knapsack.solve(numbers, numbers + 3, 300, state_limit=100)
    blocks = 60
    offsets = np.arange(0, 2 * blocks + 1, 2, dtype=np.int64)
    size = np.resize(numbers, 2 * blocks)
    base = np.zeros(blocks, dtype=np.int64)
    floor = ceiling.floor(offsets, size, size, size, base, base)
    # Little room and so few states that lists are thinned, which takes the priced sweeps too.
    capacity, few = base + floor.peak + 50, 4 * blocks
    ceiling.solve(offsets, size, size, size, 42 - size, capacity, capacity, state_limit=few)
