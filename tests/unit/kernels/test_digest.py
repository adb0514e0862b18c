"""Sums over rows of memory: as Python's integers have them, and other ones for other memory."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from haversack_kernels.digest import _KEYS, ROW_WORDS, Words, row_sums

HALF = 2**32
words = st.sampled_from([0, 1, HALF - 1, HALF, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)


def sum_of(row: Words) -> int:
    """NH of a row, as the paper has it: both halves, each with its key, multiplied."""
    total = 0
    for word, key in zip(row.tolist(), _KEYS.tolist(), strict=True):
        lower = (word % HALF + key % HALF) % HALF
        upper = (word // HALF + key // HALF) % HALF
        total += lower * upper
    return total % 2**64


@given(st.lists(words, min_size=1, max_size=40), st.integers(0, 3))
def test_each_row_has_the_sum_of_the_paper(some: list[int], rows: int) -> None:
    memory = np.resize(np.array(some, np.uint64), rows * ROW_WORDS)
    expected = [sum_of(row) for row in memory.reshape(rows, ROW_WORDS)]
    assert row_sums(memory).tolist() == expected


@given(st.integers(0, 2 * ROW_WORDS - 1), st.integers(0, 63))
def test_a_bit_changes_the_sum_of_its_row_alone(place: int, bit: int) -> None:
    memory = np.arange(2 * ROW_WORDS, dtype=np.uint64)
    changed = memory.copy()
    changed[place] ^= np.uint64(1 << bit)
    differ = row_sums(memory) != row_sums(changed)
    assert differ.tolist() == [place < ROW_WORDS, place >= ROW_WORDS]
