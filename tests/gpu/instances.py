"""Problems for the CUDA kernels, by the path they take, in the size that a machine can bear."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels.cuda.ceiling import Chain

Int64 = NDArray[np.int64]


class Knapsack(NamedTuple):
    """Hold a problem; ``tile`` is the number of cells that a block works on."""

    sizes: Int64
    gains: Int64
    capacity: int


def knapsack(path: str, tile: int, seed: int) -> Knapsack:
    """Return a random problem whose rows take this path through the kernels."""
    rng = np.random.default_rng(seed)
    most_gain = 2**40 if path.endswith("int64") else 4  # few gains: many subsets are as good
    low, high, n, cells = {
        "one tile": (1, tile // 5, 10, tile * 5 // 8),
        "fused": (tile // 16, tile // 4, 14, tile * 3 // 2),
        "fused int64": (tile // 16, tile // 4, 12, tile * 3 // 2),
        "one by one": (tile // 2, tile, 5, tile * 7 // 4),
        "all paths": (1, tile, 10, tile * 7 // 4),
        "equal": (tile // 12, tile // 12 + 3, 16, tile * 5 // 4),
    }[path]
    sizes = rng.integers(low, high, n)
    return Knapsack(sizes, rng.integers(1, most_gain, n), cells + int(rng.integers(0, 70)))


KNAPSACK_PATHS = (
    "one tile",
    "fused",
    "fused int64",
    "one by one",
    "all paths",
    "equal",
)


def chain(path: str, tile: int, seed: int) -> Chain:
    """Return a random chain of blocks whose rows take this path through the kernels."""
    rng = np.random.default_rng(seed)
    most_extra = 2**40 if path.endswith("int64") else 4  # few extras: many plans cost as much
    least, most, blocks = {
        "one tile": (0, tile // 12, 6),
        "fused": (0, tile // 5, 10),
        "fused int64": (0, tile // 5, 10),
        "one by one": (tile * 2 // 5, tile, 4),
        "free": (0, 2, 5),
    }[path]
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 5, blocks))])
    retained = rng.integers(least, most, offsets[-1])
    room = int(np.maximum.reduceat(retained, offsets[:-1]).sum() * rng.uniform(0.4, 0.9))
    ceiling = room - rng.integers(0, most, offsets[-1])
    return Chain(offsets, retained, rng.integers(0, most_extra, offsets[-1]), ceiling)


CHAIN_PATHS = ("one tile", "fused", "fused int64", "one by one", "free")
