"""Sums over memory by which it is told whether it still holds what it held.

NH of Black, Halevi, Krawczyk, Krovetz and Rogaway (1999, "UMAC: Fast and Secure Message
Authentication"): both halves of a word are added to random numbers of their own, and multiplied
with each other. Rows that differ have equal sums once in 2**32 times, whatever they differ in. One
pass, nearly as fast as memory is read; every row has a sum of its own, and all rows the same keys.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from haversack_kernels._jit import jit

Words: TypeAlias = NDArray[np.uint64]

ROW_WORDS = 2**11
_SEED = 19990815  # any number: keys must not depend on what is digested
_HALF_BITS = np.uint64(32)
_HALF = np.uint64(2**32 - 1)


def row_sums(words: Words) -> Words:
    """Sum up each row of aligned uint64 words of shape (rows * ROW_WORDS,)."""
    return _row_sums(words, _KEYS)


@jit
def _row_sums(words: Words, keys: Words) -> Words:
    sums = np.zeros(words.size // keys.size, dtype=np.uint64)
    for row in range(sums.size):
        first, total = row * keys.size, np.uint64(0)
        for place in range(keys.size):
            word, key = words[first + place], keys[place]
            lower = (word + key) & _HALF
            upper = ((word >> _HALF_BITS) + (key >> _HALF_BITS)) & _HALF
            total += lower * upper
        sums[row] = total
    return sums


_KEYS = np.random.default_rng(_SEED).integers(0, 2**64 - 1, ROW_WORDS, np.uint64, endpoint=True)
