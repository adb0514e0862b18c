"""Digests of memory of the host: of long memory by sums over its rows, nearly as fast as a read."""

import ctypes
import zlib

import numpy as np

from haversack_kernels.digest import ROW_WORDS, row_sums

_WORD_BYTES = 8
_ROW_BYTES = ROW_WORDS * _WORD_BYTES
LONG_BYTES = _ROW_BYTES  # below it a cyclic redundancy check takes less time than the calls


def memory_digest(address: int, size_bytes: int) -> str:
    """Digest the bytes at an address; equal bytes have equal digests."""
    content = (ctypes.c_char * size_bytes).from_address(address)
    if size_bytes < LONG_BYTES:
        return f"{zlib.crc32(memoryview(content)):08x}"
    if address % _WORD_BYTES:
        content = type(content).from_buffer_copy(content)
    rows = size_bytes // _ROW_BYTES
    sums = row_sums(np.frombuffer(memoryview(content), np.uint64, rows * ROW_WORDS))
    check = zlib.crc32(memoryview(content)[rows * _ROW_BYTES :])
    return f"{zlib.crc32(sums.tobytes(), check):08x}"


# Compiled, or loaded, here: every run is a copy of a process that has imported this.
row_sums(np.zeros(0, np.uint64))
