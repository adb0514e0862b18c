"""What a CUDA kernel is given by a call laid out once; without a device: the driver is made up.

The layout is that of the parameters which numba compiles: ``test_cuda_compiled`` counts these.
"""

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from haversack_kernels.cuda import calls

ADDRESS = 0x7F00_0000_1000


class Driver:
    """Read the parameters of a launch where the driver would, and remember them."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=0)

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.parameters: list[list[int]] = []
        self.count = 0
        self.status: Any = 0

    def CUfunction(self, handle: int) -> int:  # noqa: N802
        return handle

    def cuLaunchKernel(self, *arguments: Any) -> tuple[Any]:  # noqa: N802
        *launch, places_at, extra = arguments
        assert extra == 0
        places = (ctypes.c_uint64 * self.count).from_address(places_at)
        read = [ctypes.c_int64.from_address(place).value for place in places]
        self.launches.append(tuple(launch))
        self.parameters.append(read)
        return (self.status,)


class OnDevice:
    """Describe an array that lies nowhere."""

    def __init__(self, shape: tuple[int, ...], typestr: str, address: int = ADDRESS) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (address, False),
        }


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made_up = Driver()
    loaded = SimpleNamespace(binding=made_up)
    monkeypatch.setattr("importlib.import_module", lambda name: loaded)
    monkeypatch.setattr(calls, "function_of", lambda kernel, taken: SimpleNamespace(handle=77))
    return made_up


def test_arrays_are_laid_out_as_numba_does(driver: Driver) -> None:
    row, table = OnDevice((5,), "<i4"), OnDevice((2, 3), "<i8", ADDRESS + 512)
    call = calls.Call(None, (), (row, table, 9))
    driver.count = 7 + 9 + 1
    call.launch((4, 2), 96, 11, 4096)
    assert driver.launches == [(77, 4, 2, 1, 96, 1, 1, 4096, 11)]
    assert driver.parameters == [
        [*(0, 0, 5, 4, ADDRESS, 5, 4), *(0, 0, 6, 8, ADDRESS + 512, 2, 3, 24, 8), 9]
    ]


def test_scalars_change_between_launches_and_arrays_do_not(driver: Driver) -> None:
    row, other = OnDevice((5,), "<i4"), OnDevice((5,), "<i4")
    call = calls.Call(None, (), (0, row, np.int32(-3)))
    driver.count = 9
    for step in (1, 2):
        assert call.takes((step, row, np.int32(-3)))
        call.launch((1, 1), 32, 0, 0)
    assert [read[0] for read in driver.parameters] == [1, 2]
    assert not call.takes((3, other, np.int32(-3)))


def test_a_scalar_keeps_its_width(driver: Driver) -> None:
    call = calls.Call(None, (), (np.int32(-3), np.float64(1.5), np.int64(-3)))
    driver.count = 3
    call.launch((1, 1), 32, 0, 0)
    narrow, real, wide = driver.parameters[0]
    assert narrow % 2**32 == 2**32 - 3  # of the eight bytes a kernel reads the first four
    assert np.int64(real).view(np.float64) == 1.5
    assert wide == -3


def test_what_the_driver_says_is_raised_by_its_name(driver: Driver) -> None:
    call = calls.Call(None, (), (1,))
    driver.count, driver.status = 1, SimpleNamespace(name="CUDA_ERROR_INVALID_VALUE")
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_VALUE"):
        call.launch((1, 1), 32, 0, 0)


def test_a_part_lies_within_its_buffer() -> None:
    buffer = OnDevice((1024,), "|u1")
    part = calls.Part(buffer, 256, np.zeros((3, 2), np.int64))
    described = part.__cuda_array_interface__
    assert described["data"] == (ADDRESS + 256, False)
    assert (described["shape"], described["typestr"]) == ((3, 2), "<i8")
