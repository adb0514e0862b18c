"""Chains with segments that the tests of ``haversack_kernels.segments`` share."""

from typing import Any

import numpy as np

from haversack_kernels import segments
from haversack_kernels._jit import Int64


def column(*values: int) -> Int64:
    return np.array(values, dtype=np.int64)


# Block 0 blows its small input up to 10 bytes, block 1 brings them down to 2, block 2 is the loss.
# Rows: save (0) and recompute (1) of block 0, the same of block 1 (2, 3), save of block 2 (4).
HOURGLASS = segments.Chain(
    offsets=column(0, 2, 4, 5),
    retained=column(13, 10, 5, 2, 0),
    forward_peak=column(13, 11, 5, 3, 18),
    backward_peak=column(23, 23, 17, 17, 20),
    extra=column(0, 3, 0, 3, 0),
    inside=np.array([True] * 5),
    plain_peak=column(11, 3, 18),
    plain_time=column(4, 4, 9),
    boundary=column(10, 2, 0),
    gathered=column(0, 0, 0),
    forward_base=column(0, 0, 0),
    backward_base=column(0, 0, 0),
)


def solve(budget: int, chain: segments.Chain = HOURGLASS, **options: Any) -> segments.Schedule:
    return segments.solve(chain, budget, **{"unit": 1, "refine": False, **options})


def equal_blocks(blocks: int, growing_base: int = 0) -> segments.Chain:
    """Blocks of two options, save and recompute, each with the base of ``growing_base`` more."""
    each = np.ones(blocks, dtype=np.int64)
    return segments.Chain(
        offsets=np.arange(blocks + 1, dtype=np.int64) * 2,
        retained=np.tile(column(19, 4), blocks),
        forward_peak=np.tile(column(21, 11), blocks),
        backward_peak=np.tile(column(30, 30), blocks),
        extra=np.tile(column(0, 7), blocks),
        inside=np.ones(2 * blocks, dtype=np.bool_),
        plain_peak=11 * each,
        plain_time=7 * each,
        boundary=4 * each,
        gathered=0 * each,
        forward_base=0 * each,
        backward_base=growing_base * np.arange(blocks, dtype=np.int64)[::-1],
    )
