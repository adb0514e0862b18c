"""Memory that solves borrow and give back, so that the next one finds it mapped already.

A fresh matrix of decisions costs a third of the solve in page faults; a repeated one costs none. A
lease belongs to one solve alone, whatever thread it runs in, so concurrent solves never share.
Knows nothing of what is kept in it.
"""

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

LINE = 64
"""Bytes of a cache line: every array starts on one."""

IDLE_LIMIT_BYTES = 512 << 20
"""Memory kept for solves to come; what is given back beyond it is freed."""

_idle: deque[NDArray[np.uint8]] = deque()  # its operations are atomic: no lock, so none to wait for


class ArenaLimitError(ValueError):
    """Tell that a solve needs more memory than it may have, and which unit would do.

    ``unit`` is None if no unit would.
    """

    def __init__(self, message: str, *, needed_bytes: int, unit: int | None) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.unit = unit


class Lease:
    """Lend ``size_bytes`` of memory until it is given back; use it as a context manager."""

    def __init__(self, size_bytes: int) -> None:
        self._buffer = _idle_buffer(size_bytes + LINE)
        self._used = -self._buffer.ctypes.data % LINE

    def array(self, count: int, dtype: Any) -> NDArray[Any]:
        """Return the next ``count`` elements, not set to anything, from a cache line on."""
        size_bytes = count * np.dtype(dtype).itemsize
        at = self._used
        self._used += aligned(size_bytes)
        array: NDArray[Any] = self._buffer[at : at + size_bytes].view(dtype)
        return array

    def give_back(self) -> None:
        """Leave the memory to others; what was in it is theirs to overwrite. Twice is once."""
        buffer, self._buffer = self._buffer, self._buffer[:0]
        if buffer.size and sum(idle.size for idle in list(_idle)) + buffer.size <= IDLE_LIMIT_BYTES:
            _idle.append(buffer)

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()


def aligned(size_bytes: int) -> int:
    """Return the bytes that an array of ``size_bytes`` takes of a lease."""
    return -(-size_bytes // LINE) * LINE


def free_idle() -> None:
    """Free what no solve is using now."""
    _idle.clear()


def _idle_buffer(size_bytes: int) -> NDArray[np.uint8]:
    """Return an idle buffer that is large enough, or a new one; smaller idle ones are freed."""
    while _idle:
        try:
            buffer = _idle.pop()
        except IndexError:  # another thread took the last one
            break
        if buffer.size >= size_bytes:
            return buffer
    return np.empty(size_bytes, dtype=np.uint8)
