"""Conversions of weights to 4 bits: published bytes of one, and what holds for any."""

import json
from pathlib import Path

import pytest

from haversack_server.memory.nf4_conversion import CHUNK, Conversion, original, to_nf4
from haversack_server.memory.replayed_memory import Memory

GOLDEN = Path(__file__).parents[2] / "golden" / "estimate" / "loading.json"
WHOLE = Conversion()
CHUNKED = Conversion(chunk=CHUNK, own=True)
ELEMENTS = 4096 * 4096


def test_a_measured_conversion_is_met_to_the_byte() -> None:
    (row,) = json.loads(GOLDEN.read_text())["conversions"]
    memory, elements = Memory(0), row["elements"]
    memory.new(row["before_bytes"])
    memory.new(2 * elements)
    to_nf4(memory, elements, WHOLE)
    assert memory.allocator.peak_bytes == row["peak_allocated_bytes"]
    assert memory.allocator.reserved_bytes == row["peak_reserved_bytes"]


def test_a_whole_weight_takes_64_bytes_for_each_element_beside_what_a_chunk_takes_too() -> None:
    heights = []
    for conversion in (WHOLE, CHUNKED):
        memory = Memory(0)
        to_nf4(memory, ELEMENTS, conversion)
        heights.append(memory.allocator.peak_bytes)
    factors = ELEMENTS // 64 * 2 - ELEMENTS // 64 // 256 * 2
    # A chunk's tables are 64 MiB, and the nearest values of a whole weight wait in a byte each.
    assert heights[0] - heights[1] == 64 * (ELEMENTS - CHUNK) - ELEMENTS + factors


@pytest.mark.parametrize(
    ("conversion", "factors"), [(WHOLE, ELEMENTS // 64), (CHUNKED, ELEMENTS // 64 // 256)]
)
def test_what_stays_is_two_weights_in_a_byte_with_scalers_and_factors(
    conversion: Conversion, factors: int
) -> None:
    memory = Memory(0)
    kept = to_nf4(memory, ELEMENTS, conversion)
    values_and_mean = 2 * 512
    stays = ELEMENTS // 2 + ELEMENTS // 64 + 2 * factors + values_and_mean
    assert memory.allocator.allocated_bytes == stays
    memory.drop(*kept)
    assert memory.allocator.allocated_bytes == 0


def test_a_copy_takes_14_bytes_for_each_element_and_leaves_the_weight() -> None:
    memory = Memory(0)
    weight = original(memory, ELEMENTS)
    scalers = ELEMENTS // 64 * 2
    assert memory.allocator.peak_bytes == 14 * ELEMENTS + scalers
    assert memory.allocator.allocated_bytes == 2 * ELEMENTS
    memory.drop(weight)
    assert memory.allocator.allocated_bytes == 0
