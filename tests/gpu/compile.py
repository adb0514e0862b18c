"""Compiles every CUDA kernel without a device: ``python -m tests.gpu.compile 9.0``.

Prints one JSON object: a kernel and type of cell, and its PTX; or ``{"missing": why}`` where not
even an empty kernel compiles. In a process of its own, for it must not be the simulator's.
"""

import json
import sys
from typing import Any

import numpy as np
from numba import int32

from haversack_kernels.cuda import ceiling_kernels, knapsack_kernels
from haversack_kernels.cuda.compiled import cuda


def _nothing(numbers: Any) -> None:
    numbers[0] = 1


def kernels() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Return every kernel for every type of cell it is launched with, and what it takes then."""
    found: dict[str, tuple[Any, tuple[Any, ...]]] = {}
    for name in ("int32", "int64", "float64"):
        cell = np.dtype(name)
        taken = knapsack_kernels.signature(cell)
        found[f"sweep_one {name}"] = knapsack_kernels.sweep_one, taken["sweep_one"]
        found[f"sweep_group {name}"] = knapsack_kernels.SWEEP_GROUP[cell], taken["sweep_group"]
        found["trace"] = knapsack_kernels.trace, taken["trace"]
    for name in ("int32", "int64"):
        taken = ceiling_kernels.signature(np.dtype(name))
        found[f"extend_one {name}"] = ceiling_kernels.extend_one, taken["extend_one"]
        found[f"extend_group {name}"] = ceiling_kernels.extend_group, taken["extend_group"]
        found["trace of options"] = ceiling_kernels.trace, taken["trace"]
    return found


def main() -> None:
    major, minor = (int(part) for part in sys.argv[1].split("."))
    capability = major, minor
    try:
        cuda.compile_ptx(_nothing, (int32[::1],), cc=capability)
    except Exception as error:  # numba has a different one for each thing that may be missing
        json.dump({"missing": f"{type(error).__name__}: {error}".splitlines()[0]}, sys.stdout)
        return
    compiled = {
        name: cuda.compile_ptx(kernel.py_func, taken, cc=capability)[0]
        for name, (kernel, taken) in kernels().items()
    }
    json.dump(compiled, sys.stdout)


if __name__ == "__main__":
    main()
