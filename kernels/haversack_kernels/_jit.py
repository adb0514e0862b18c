"""How kernels are compiled and how their arguments are checked; knows no algorithm."""

import operator
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from haversack_kernels import cache

Int64: TypeAlias = NDArray[np.int64]
Int32: TypeAlias = NDArray[np.int32]
Float64: TypeAlias = NDArray[np.float64]
CancelFlag: TypeAlias = NDArray[np.uint8]

MAX_INT64 = 2**63 - 1
MOST_STATES = 2**31 - 1
"""Limits on states are held to this: trails count in int32."""


class Signals(NamedTuple):
    """Hold what a caller may set and may look at: a wish to stop, and the list steps begun."""

    cancel: CancelFlag
    steps: Int64


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def jit(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Compile ``function`` on its first call, without the GIL, and keep the code on disk."""
    compiled = cache.njit(function, nogil=True, error_model="numpy", no_cfunc_wrapper=True)
    return cast(Callable[_Arguments, _Result], compiled)


def column(name: str, values: object) -> Int64:
    """Return ``values`` as a contiguous writable copy, or raise if it is no int64 vector.

    One layout for all callers: numba compiles anew for a read-only or strided array.
    """
    if not isinstance(values, np.ndarray) or values.dtype != np.int64 or values.ndim != 1:
        raise TypeError(f"{name} is not a one-dimensional int64 array")
    return np.array(values, order="C")


def natural(name: str, values: object) -> Int64:
    """Return ``values`` as ``column`` does, or raise if one of them is negative."""
    copied = column(name, values)
    if copied.size and copied.min() < 0:
        raise ValueError(f"{name}[{int(copied.argmin())}] is negative")
    return copied


def integer(name: str, value: object) -> int:
    """Return ``value``, if it is a whole number of whatever type, as Python's own, or raise.

    Numba compiles anew for another type, and a float that passes for an int gives another answer.
    """
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} is {value!r}, not an integer") from None


def flag(cancel: object) -> CancelFlag:
    """Return the caller's cancel flag, or one that nobody sets."""
    if cancel is None:
        return np.zeros(1, dtype=np.uint8)
    if not isinstance(cancel, np.ndarray) or cancel.dtype != np.uint8 or cancel.shape != (1,):
        raise TypeError("cancel is not a uint8 array of one element")
    return cancel


def signals(cancel: object, steps: object = None) -> Signals:
    """Return the caller's cancel flag and step counter, set to 0, or ones that nobody looks at."""
    if steps is None:
        steps = np.zeros(1, dtype=np.int64)
    if not isinstance(steps, np.ndarray) or steps.dtype != np.int64 or steps.shape != (1,):
        raise TypeError("steps is not an int64 array of one element")
    steps[0] = 0
    return Signals(flag(cancel), steps)


def total(values: Int64) -> int:
    """Sum non-negative ``values`` exactly, also beyond 2^63."""
    high, low = int((values >> 32).sum()), int((values & 0xFFFFFFFF).sum())
    return (high << 32) + low
