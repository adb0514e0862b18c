"""Chains of blocks with eight options each, as a GPT-2 block's table reads."""

from typing import NamedTuple

import numpy as np
from tests.bench.instances import Int64

from haversack_kernels import ceiling

MIB = 1 << 20

# A GPT-2 block's measured table, in MiB: save 27, half of the matmuls 13.5, attention only 3,
# recompute 1.5, the same backward peak for all. The options between, and the milliseconds, are
# made up.
RETAINED = (27, 22, 16.5, 13.5, 9, 6, 3, 1.5)
FORWARD = (28.5, 26, 22.5, 21, 18, 16.5, 15, 13.5)
BACKWARD = (36.8,) * 8
EXTRA = (0, 0.1, 0.2, 0.4, 0.55, 0.7, 0.8, 1.0)


class Columns(NamedTuple):
    """Hold the option columns of a chain; its bases are zero."""

    offsets: Int64
    retained: Int64
    forward_peak: Int64
    backward_peak: Int64
    extra: Int64


def blocks_of_eight(blocks: int, jitter: float = 0.0, seed: int = 0) -> Columns:
    """Return equal blocks, or blocks whose every figure differs by so much."""
    random = np.random.default_rng(seed)

    def per_option(values: tuple[float, ...], unit: float) -> Int64:
        factor = 1 + jitter * random.standard_normal(8 * blocks).clip(-3, 3)
        return (np.tile(values, blocks) * unit * factor).astype(np.int64)

    return Columns(
        np.arange(blocks + 1) * 8,
        per_option(RETAINED, MIB),
        per_option(FORWARD, MIB),
        per_option(BACKWARD, MIB),
        per_option(EXTRA, 1e6),
    )


def budget_between(columns: Columns, share: float) -> int:
    """Return a budget between the least peak of all plans and that of saving everything."""
    base = np.zeros(columns.offsets.size - 1, dtype=np.int64)
    floor = ceiling.floor(*columns[:4], base, base).peak
    saved = ceiling.evaluate(*columns[:4], base, base, columns.offsets[:-1]).peak
    return int(floor + share * (saved - floor))
