"""Whether a GPU's driver works inside a sandbox: tried in a copy of this process, which then ends.

The driver opens device files, reads ``/proc``, and may want more on other versions. Not all that it
wants is known, so a sandbox is entered only after it was seen to work in it. Loads no torch: a
context, a megabyte, and the device's own word that it was written.
"""

import contextlib
import ctypes
import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any

DEVICES = pathlib.Path("/dev")
CACHE = ".cuda-cache"  # folder in a job's scratch folder for what the driver compiles
_PATIENCE_S = 30
_SIZE_BYTES = 2**20
_LONGEST = 300  # bytes of a reason


def device_files() -> list[str]:
    """List the files of NVIDIA's driver, those of parts of a GPU too."""
    found = [*DEVICES.glob("nvidia*"), *DEVICES.glob("nvidia*/*")]
    return sorted(str(each) for each in found if not each.is_dir())


def refusal_inside(enter: Callable[[], object], use: Callable[[], object] | None = None) -> str:
    """Enter a sandbox in a copy of this process and use the GPU there; gives "" or why it failed.

    ``use`` is ``use_gpu`` if None. A copy that does not answer is killed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _try(enter, use or use_gpu, writing)
    os.close(writing)
    with open(reading, "rb") as answer:
        said = answer.read(_LONGEST).decode(errors="replace")
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGALRM:
        return f"it did not answer within {_PATIENCE_S} s"
    return said or ("" if code == 0 else f"its process ended with {code}")


def _try(enter: Callable[[], object], use: Callable[[], object], writing: int) -> None:
    """Do both and say what went wrong; the stack of the parent is never returned to."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_PATIENCE_S)
        enter()
        use()
        status = 0
    except BaseException as error:  # whatever it is, it is the answer
        with contextlib.suppress(OSError):
            os.write(writing, f"{type(error).__name__}: {error}".encode()[:_LONGEST])
    finally:
        os._exit(status)


def use_gpu() -> None:
    """Make a context on the first GPU in sight, and write to its memory. Raises OSError."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    _checked(driver, driver.cuInit(0))
    _checked(driver, driver.cuDeviceGet(ctypes.byref(device), 0))
    _checked(driver, driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _checked(driver, driver.cuCtxSetCurrent(context))
    size = ctypes.c_size_t(_SIZE_BYTES)
    _checked(driver, driver.cuMemAlloc_v2(ctypes.byref(memory), size))
    _checked(driver, driver.cuMemsetD8_v2(memory, ctypes.c_ubyte(1), size))
    _checked(driver, driver.cuCtxSynchronize())


def _checked(driver: Any, result: int) -> None:
    if result == 0:
        return
    name = ctypes.c_char_p()
    driver.cuGetErrorName(result, ctypes.byref(name))
    raise OSError(f"the driver says {(name.value or b'').decode() or result}")
