"""How the CUDA kernels are compiled, and given more shared memory than a block has by default.

Imports ``numba.cuda``, which is the simulator where ``NUMBA_ENABLE_CUDASIM`` was set before.
"""

import importlib
from collections.abc import Callable
from typing import Any

from numba.core import config as numba_config

from haversack_kernels.cache import place
from haversack_kernels.cuda.errors import NoDeviceError

try:
    import numba
    import numba.cuda
except (ImportError, RuntimeError) as error:  # the latter where CUDA's libraries are not found
    raise NoDeviceError(
        "numba cannot use CUDA here: install numba-cuda[cu13], or numba-cuda and a CUDA toolkit"
    ) from error

config: Any = numba_config  # its attributes are made when it is loaded
cuda: Any = numba.cuda  # under this name the simulator finds it in the kernels' modules

DEFAULT_SHARED_BYTES = 48 << 10
"""What every kernel may use of shared memory without being asked about it."""

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # numba warns of small grids; small problems need no more


def simulated() -> bool:
    """Tell whether kernels run in numba's simulator: on CPU threads, one block at a time."""
    return bool(config.ENABLE_CUDASIM)


def kernel(max_registers: int | None = None) -> Callable[[Callable[..., None]], Any]:
    """Return a decorator that compiles a kernel on its first launch and keeps the code on disk."""
    options = {} if max_registers is None or simulated() else {"max_registers": max_registers}

    def decorate(function: Callable[..., None]) -> Any:
        directory, before = place().directory, config.CACHE_DIR
        config.CACHE_DIR = str(directory or "")  # a locator reads it here, once
        try:
            return cuda.jit(cache=directory is not None, **options)(function)
        finally:
            config.CACHE_DIR = before

    return decorate


def part(function: Callable[..., Any]) -> Any:
    """Let a function become part of each kernel that calls it, before either is compiled.

    As a device function it would be compiled by itself, which takes a device.
    """
    return function if simulated() else numba.njit(inline="always")(function)


def with_shared_memory(launched: Any, signature: tuple[Any, ...], size_bytes: int) -> None:
    """Let the kernel of this signature use ``size_bytes`` of dynamic shared memory per block.

    Above 48 KiB the driver wants to be told, and numba has no word for it.
    """
    if simulated() or size_bytes <= DEFAULT_SHARED_BYTES:
        return
    driver: Any = importlib.import_module("numba.cuda.cudadrv.driver")
    function = function_of(launched, signature)
    attribute = driver.binding.CUfunction_attribute
    most = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.driver.cuKernelSetAttribute(most, size_bytes, function.handle, function.device.id)


def function_of(launched: Any, signature: tuple[Any, ...]) -> Any:
    """Return the driver's function of a kernel of this signature, compiled or loaded from disk.

    No public name leads there; numba-cuda 0.23 to 0.30 keep it where it is looked for here.
    """
    return launched.compile(signature)._codelibrary.get_cufunc()
