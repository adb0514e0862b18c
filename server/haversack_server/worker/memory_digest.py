"""Digests of long memory of the host, in two thirds of the time of a cyclic redundancy check.

Multilinear hashing (Lemire and Kaser 2014, "Strongly universal string hashing is fast"): words of 8
bytes, each times a random number of its own, added up. Integers wrap, which drops the upper bits of
a product: those of signs, say. So all is added up twice, the second time from 4 bytes further on,
where the upper half of each word is the lower half of one. Two memories that differ then have equal
sums once in 2**32 times, whatever they differ in.
"""

import ctypes
import zlib

import torch

LONG_BYTES = 2**16  # below it the check takes less time than the calls
_WORD_BYTES = 8
_HALF_BYTES = 4
_WORDS = 2**11  # of one row: every row has sums of its own, and all rows the same factors
_SEED = 20140218  # any number: factors must not depend on what is digested
_FACTORS = torch.randint(
    -(2**63), 2**63 - 1, (2, _WORDS), generator=torch.Generator().manual_seed(_SEED), device="cpu"
)


def memory_digest(address: int, size_bytes: int) -> str:
    """Digest the bytes at an address; equal bytes have equal digests."""
    content = (ctypes.c_char * size_bytes).from_address(address)
    if address % _HALF_BYTES:
        content = type(content).from_buffer_copy(content)
    row_bytes = _WORDS * _WORD_BYTES
    # The last half word of a row that begins further on lies behind it.
    rows = (size_bytes - _HALF_BYTES) // row_bytes if size_bytes >= LONG_BYTES else 0
    check = zlib.crc32(memoryview(content)[rows * row_bytes :])
    for place, factors in enumerate(_FACTORS if rows else ()):
        words = torch.frombuffer(
            content, dtype=torch.int64, count=rows * _WORDS, offset=place * _HALF_BYTES
        )
        sums = torch.mv(words.view(rows, _WORDS), factors)
        check = zlib.crc32(sums.numpy().tobytes(), check)
    return f"{check:08x}"
