"""The allocator's rules, one by one, by hand; sizes in MiB where nothing else is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haversack_server.memory.caching_allocator import Block, CachingAllocator

MIB = 2**20


@pytest.mark.parametrize(
    ("size", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 11 * MIB, 12 * MIB),
    ],
)
def test_a_size_is_rounded_and_so_is_its_segment(size: int, allocated: int, reserved: int) -> None:
    memory = CachingAllocator()
    # What is left of a segment stays with the block where it is too small to be one.
    rest = reserved - allocated
    kept = 0 if size > MIB and 0 < rest <= MIB else rest
    memory.take(size)
    assert memory.allocated_bytes == reserved - kept
    assert memory.reserved_bytes == reserved


def test_what_was_freed_is_taken_again_and_nothing_is_given_back() -> None:
    memory = CachingAllocator()
    memory.free(memory.take(64 * MIB))
    memory.take(40 * MIB)
    memory.take(24 * MIB)
    assert (memory.allocated_bytes, memory.reserved_bytes) == (64 * MIB, 64 * MIB)


def test_the_smallest_block_that_is_large_enough_is_taken() -> None:
    memory = CachingAllocator()
    large, middle, least = (memory.take(size * MIB) for size in (100, 60, 50))
    for block in (large, middle, least):
        memory.free(block)
    memory.take(55 * MIB)
    memory.take(100 * MIB)
    assert memory.reserved_bytes == 210 * MIB


def test_pieces_do_not_serve_what_needs_a_whole() -> None:
    """Fragmentation: 100 are free, but not in one piece."""
    memory = CachingAllocator()
    first = memory.take(50 * MIB)
    second = memory.take(50 * MIB)
    memory.free(first)
    memory.free(second)
    memory.take(80 * MIB)
    assert memory.reserved_bytes == 180 * MIB


def test_free_neighbours_are_joined() -> None:
    memory = CachingAllocator()
    memory.free(memory.take(100 * MIB))
    parts = [memory.take(size * MIB) for size in (30, 40, 30)]
    for place in (0, 2, 1):
        memory.free(parts[place])
    memory.take(100 * MIB)
    assert memory.reserved_bytes == 100 * MIB


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 80 * MIB)), max_size=60))
def test_blocks_are_counted_once_and_lie_in_segments(events: list[tuple[bool, int]]) -> None:
    memory = CachingAllocator()
    taken: list[Block] = []
    for frees, size in events:
        if frees and taken:
            memory.free(taken.pop(size % len(taken)))
        else:
            taken.append(memory.take(size))
        assert memory.allocated_bytes == sum(block.size_bytes for block in taken)
        assert memory.allocated_bytes <= memory.peak_bytes <= memory.reserved_bytes
    whole = memory.reserved_bytes
    for block in taken:
        memory.free(block)
    assert (memory.allocated_bytes, memory.reserved_bytes) == (0, whole)
