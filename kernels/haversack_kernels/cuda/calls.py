"""Calls of a CUDA kernel whose arguments are laid out once: a launch then takes a few microseconds.

Numba unpacks every array anew at each launch, which takes longer than most kernels here run
(docs/benchmarks/gpu.md). The steps of a sweep differ in a few numbers only. What a kernel takes is
numba's convention (numba-cuda 0.23 to 0.30): a scalar as it is; of an array two nulls, the number
of items, the bytes of one, its address, its shape and its strides.
"""

import importlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haversack_kernels.cuda.compiled import function_of

PARAMETER_BYTES = 8


class Part:
    """Describe an array within a device's buffer, which it keeps alive."""

    __slots__ = ("__cuda_array_interface__", "_buffer")

    def __init__(self, buffer: Any, begin: int, array: NDArray[Any]) -> None:
        self._buffer = buffer
        address, _ = buffer.__cuda_array_interface__["data"]
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (address + begin, False),
            "version": 3,
        }


class Call:
    """Hold a kernel of one signature and its arguments, whose scalars may change between launches.

    Arrays are on the device and contiguous.
    """

    def __init__(self, kernel: Any, signature: tuple[Any, ...], arguments: tuple[Any, ...]) -> None:
        driver: Any = importlib.import_module("numba.cuda.cudadrv.driver")
        self._driver = driver.binding
        self._success = self._driver.CUresult.CUDA_SUCCESS
        self._function = self._driver.CUfunction(int(function_of(kernel, signature).handle))
        self._arguments = list(arguments)
        parameters: list[int] = []
        self._scalars: dict[int, int] = {}  # of an argument, where its parameter is
        for position, argument in enumerate(arguments):
            if isinstance(argument, int | np.generic):
                self._scalars[position] = len(parameters)
                parameters.append(_bits(argument))
            else:
                parameters += _array_parameters(argument)
        # The driver reads from here at each launch, so both stay as long as the call.
        self._parameters = np.array(parameters, dtype=np.int64)
        first = self._parameters.ctypes.data
        self._places = first + PARAMETER_BYTES * np.arange(len(parameters), dtype=np.uint64)
        self._places_at = int(self._places.ctypes.data)

    def takes(self, arguments: tuple[Any, ...]) -> bool:
        """Take the scalars of ``arguments``; tell whether the arrays are those laid out."""
        for position, argument in enumerate(arguments):
            if argument is not self._arguments[position]:
                if position not in self._scalars:
                    return False
                self._arguments[position] = argument
                self._parameters[self._scalars[position]] = _bits(argument)
        return True

    def launch(self, grid: tuple[int, int], threads: int, stream: int, shared_bytes: int) -> None:
        """Send the kernel; raise ``RuntimeError`` with the driver's name of what went wrong."""
        sizes = *grid, 1, threads, 1, 1
        taken = shared_bytes, stream, self._places_at, 0
        (status,) = self._driver.cuLaunchKernel(self._function, *sizes, *taken)
        if status != self._success:
            raise RuntimeError(f"cuLaunchKernel results in {status.name}")


def _array_parameters(array: Any) -> list[int]:
    described = array.__cuda_array_interface__
    shape, item_bytes = described["shape"], np.dtype(described["typestr"]).itemsize
    strides = [item_bytes * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    address, _ = described["data"]
    return [0, 0, math.prod(shape), item_bytes, address, *shape, *strides]


def _bits(scalar: int | np.generic) -> int:
    """Return a scalar's bytes as an integer; of a narrow one the kernel reads the first bytes."""
    return int(scalar.view(f"i{scalar.itemsize}")) if isinstance(scalar, np.generic) else scalar
