"""A small model of PyTorch's CUDA caching allocator: what it reserves for a sequence of requests.

As the allocator of torch 2.11 does by default (c10/cuda/CUDACachingAllocator.cpp; the notes on CUDA
semantics of PyTorch's documentation): sizes are rounded up to 512 bytes; up to 1 MiB comes from
segments of 2 MiB, up to 10 MiB from segments of 20 MiB, more from segments of its own size, rounded
up to 2 MiB. The smallest free block that is large enough is taken and split, where what is left is
at least 512 bytes of a small one or more than 1 MiB of a large one; free neighbours of a segment
are joined, and no segment is given back. One stream; no ``expandable_segments``.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Optional

KIB, MIB = 2**10, 2**20
ROUNDED_TO = 512
SMALL = MIB
SMALL_SEGMENT, LARGE_SEGMENT, SEGMENT_ROUNDED_TO = 2 * MIB, 20 * MIB, 2 * MIB
OWN_SEGMENT_FROM = 10 * MIB


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment, between its neighbours in the segment."""

    number: int
    size_bytes: int
    small: bool
    free: bool = False
    before: Optional["Block"] = None
    after: Optional["Block"] = None


class CachingAllocator:
    """Takes and frees blocks; counts what is allocated and what is reserved."""

    def __init__(self) -> None:
        self.allocated_bytes = 0
        self.peak_bytes = 0
        self.reserved_bytes = 0
        self._made = 0
        # By pool: free blocks as (bytes, number, block), smallest first; no two numbers are equal.
        self._free: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}

    def take(self, size_bytes: int) -> Block:
        """Give a block of at least that size."""
        size = max(ROUNDED_TO, -(-size_bytes // ROUNDED_TO) * ROUNDED_TO)
        small = size <= SMALL
        block = self._found(size, small) or self._segment(size, small)
        left = block.size_bytes - size
        if left >= (ROUNDED_TO if small else SMALL + 1):
            self._split(block, size)
        block.free = False
        self.allocated_bytes += block.size_bytes
        self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)
        return block

    def free(self, block: Block) -> None:
        """Take a block back, and join it with its free neighbours."""
        self.allocated_bytes -= block.size_bytes
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._drop(other)
                self._join(block, other)
        self._keep(block)

    def _found(self, size: int, small: bool) -> Block | None:
        pool = self._free[small]
        place = bisect_left(pool, (size, 0))
        return pool.pop(place)[2] if place < len(pool) else None

    def _segment(self, size: int, small: bool) -> Block:
        whole = -(-size // SEGMENT_ROUNDED_TO) * SEGMENT_ROUNDED_TO
        if small:
            whole = SMALL_SEGMENT
        elif size < OWN_SEGMENT_FROM:
            whole = LARGE_SEGMENT
        self.reserved_bytes += whole
        return self._new(whole, small)

    def _new(self, size: int, small: bool) -> Block:
        self._made += 1
        return Block(self._made, size, small)

    def _split(self, block: Block, size: int) -> None:
        rest = self._new(block.size_bytes - size, block.small)
        rest.before, rest.after, block.size_bytes = block, block.after, size
        if block.after is not None:
            block.after.before = rest
        block.after = rest
        self._keep(rest)

    def _join(self, block: Block, other: Block) -> None:
        block.size_bytes += other.size_bytes
        if other is block.before:
            block.before = other.before
            if other.before is not None:
                other.before.after = block
            return
        block.after = other.after
        if other.after is not None:
            other.after.before = block

    def _keep(self, block: Block) -> None:
        block.free = True
        insort(self._free[block.small], (block.size_bytes, block.number, block))

    def _drop(self, block: Block) -> None:
        pool = self._free[block.small]
        del pool[bisect_left(pool, (block.size_bytes, block.number))]
