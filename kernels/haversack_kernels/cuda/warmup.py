"""Compiles every CUDA kernel, or loads its code from disk, and makes the context: for a worker."""

import numpy as np

from haversack_kernels.cuda import ceiling, knapsack
from haversack_kernels.cuda.tiling import Tiling

ALONE = Tiling(most_threads=32, multiprocessors=1, fuse=False)


def warm_up() -> None:
    """Solve small problems through every kernel and type of cell.

    Raises ``NoDeviceError`` or ``DeviceFaultError`` if the device cannot be used.
    """
    sizes = np.array([3, 4, 5, 9], dtype=np.int64)
    offsets = np.array([0, 2, 4], dtype=np.int64)
    for scale in (1, 1 << 33):  # cells of 32 and of 64 bits
        for tiling in (None, ALONE):
            knapsack.solve_all(sizes, sizes * scale, 11, tiling=tiling).trace(11)
        chain = ceiling.Chain(offsets, sizes, sizes * scale, sizes)
        for fuse in (True, False):
            ceiling.solve(chain, fuse=fuse)
