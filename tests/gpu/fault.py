"""Breaks the CUDA context of this process, then solves: ``python -m tests.gpu.fault``.

Prints what the solves raised. In a process of its own, which can use the device no more.
"""

from typing import Any

import numpy as np

from haversack_kernels.cuda import knapsack, launch
from haversack_kernels.cuda.compiled import cuda
from haversack_kernels.cuda.errors import DeviceFaultError


@cuda.jit  # type: ignore[untyped-decorator]
def _beyond(numbers: Any) -> None:
    numbers[1 << 40] = 1


def main() -> None:
    ones = np.ones(2, dtype=np.int64)
    with launch.on_device():
        queue = launch.Queue(launch.watch(None, None))
        numbers = queue.upload(np.zeros(1, dtype=np.int32))
    try:
        with launch.on_device():
            queue.launch(_beyond, (), (1, 1), 1, numbers)
            queue.drain()
    except DeviceFaultError as fault:
        print(f"sticky={fault.sticky} {fault}")
    for _ in range(2):
        try:
            knapsack.solve_all(ones * 2, ones, 3)
        except DeviceFaultError as fault:
            print(f"sticky={fault.sticky} {fault}")


if __name__ == "__main__":
    main()
