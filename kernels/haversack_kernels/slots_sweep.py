"""The inner loops of ``haversack_kernels.slots``: a row per block, 64 cells at a step.

A row's cells are lowered by each option of the block in turn, tile by tile, so that they stay in
L1; the row of the block after is read from L2. One LLVM vector operation compares 64 cells and
leaves a bit for each, set if the option is taken there: the last option whose bit is set is the one
that counts. numba's own loop tests every index for being negative and does not vectorise; and a
byte with the option's number takes twice as long as the bit, for want of fast masked stores.

Knows nothing of bytes.
"""

# numpy's types cannot tell an element from an array; in a kernel it is a scalar.
# pyright: reportAssignmentType=false

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from haversack_kernels._jit import CancelFlag, Int64, jit

Cells: TypeAlias = NDArray[Any]
"""int32 or int64: one kernel is compiled for each."""

Bits: TypeAlias = NDArray[np.uint64]
"""A row of words per option."""

BLOCK = 64
TILE = 4096
CANCELLED = -1


class Chain(NamedTuple):
    """Hold the options of block ``j`` at ``offsets[j]:offsets[j + 1]``, sizes in slots.

    An option leads to cells ``first`` up to ``end``, from those ``retained`` before.
    """

    offsets: Int64
    retained: Int64
    first: Int64
    end: Int64
    extra: Cells


def _lower(typing: Any, row: Any, at: Any, source: Any, extra: Any) -> tuple[Any, Any]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, at, source, extra = arguments
        data = context.make_array(signature.args[0])(context, builder, row).data
        block, align = ir.VectorType(extra.type, BLOCK), context.get_abi_sizeof(extra.type)

        def pointer(index: Any) -> Any:
            return builder.bitcast(builder.gep(data, [index]), block.as_pointer())

        here = builder.load(pointer(at), align=align)
        there = builder.load(pointer(source), align=align)
        found = builder.add(there, _repeated(builder, extra, block))
        is_lower = builder.icmp_signed("<", found, here)
        builder.store(builder.select(is_lower, found, here), pointer(at), align=align)
        return builder.bitcast(is_lower, ir.IntType(BLOCK))

    return types.uint64(row, types.intp, types.intp, row.dtype), generate


lower = cast(Callable[[Cells, int, int, Any], Any], intrinsic(_lower))
"""Lower the 64 cells from ``row[at]`` to those from ``row[source]`` plus ``extra``, if lower.

Returns a uint64 with a bit for each that was, the lowest cell's in the lowest bit.
"""


def _repeated(builder: Any, value: Any, block: Any) -> Any:
    index = ir.IntType(32)
    empty = ir.Constant(block, ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(index, 0))
    zeros = ir.Constant(ir.VectorType(index, BLOCK), [0] * BLOCK)
    return builder.shuffle_vector(first, empty, zeros)


@jit
def reach(offsets: Int64, retained: Int64, ceiling: Int64, end: Int64) -> int:
    """Write, going forward, the cell that each option ends at; return the length of the row."""
    most, widest = 0, 1
    for block in range(offsets.size - 1):
        furthest = 0
        for option in range(offsets[block], offsets[block + 1]):
            end[option] = max(min(ceiling[option], most), -1) + retained[option] + 1
            furthest = max(furthest, end[option] - 1)
        most = furthest
        widest = max(widest, most + 1)
    return widest


@jit
def sweep(
    chain: Chain, forward: bool, rows: Cells, bits: Bits, never: Any, cancel: CancelFlag
) -> int:
    """Fill ``bits`` block by block; return where in ``rows`` the row of the last one done is.

    ``rows`` has room for two rows of a multiple of 64 cells, ``bits`` for a row per option. Going
    forward starts from the one cell of nothing retained, else from any slack at the end. Returns
    CANCELLED at the next block once the flag is set.
    """
    stride, before, blocks = rows.size // 2, 0, chain.offsets.size - 1
    _fill(rows[:stride], never if forward else never - never)
    rows[0] = never - never
    for step in range(blocks):
        if cancel[0] != 0:
            return CANCELLED
        block, after = step if forward else blocks - 1 - step, stride - before
        _fill(rows[after : after + stride], never)
        for tile in range(0, stride, TILE):
            for option in range(chain.offsets[block], chain.offsets[block + 1]):
                first = max(chain.first[option], tile)
                end = min(chain.end[option], min(tile + TILE, stride))
                source, word = before - chain.retained[option], option * (stride // BLOCK)
                _lower_cells(rows, after, first, end, source, chain.extra[option], bits, word)
        before = after
    return before


@jit
def _fill(row: Cells, value: Any) -> None:
    for s in range(row.size):  # from 0, so that no index is tested for being negative
        row[s] = value


@jit
def _lower_cells(
    rows: Cells, row: int, first: int, end: int, source: int, extra: Any, bits: Bits, word: int
) -> None:
    """Lower cells ``first`` to ``end`` of the row by those of the row at ``source``."""
    block = -(-first // BLOCK)
    if first % BLOCK != 0 and first < end:
        bits[word + block - 1] = _lower_some(
            rows, row, first, min(end, block * BLOCK), source, extra
        )
    for b in range(block, end // BLOCK):
        bits[word + b] = lower(rows, row + b * BLOCK, source + b * BLOCK, extra)
    last = end // BLOCK
    if end % BLOCK != 0 and last >= block:
        bits[word + last] = _lower_some(rows, row, last * BLOCK, end, source, extra)


@jit
def _lower_some(rows: Cells, row: int, first: int, end: int, source: int, extra: Any) -> Any:
    """Lower cells of one block of 64, and return the bits."""
    found = np.uint64(0)
    for s in range(first, end):
        least = rows[source + s] + extra
        if least < rows[row + s]:
            rows[row + s] = least
            found |= np.uint64(1) << np.uint64(s % BLOCK)
    return found


@jit
def trace(chain: Chain, forward: bool, bits: Bits, cell: int) -> Int64:
    """Read the options that lead to a cell of the last row done."""
    options, blocks = np.empty(chain.offsets.size - 1, np.int64), chain.offsets.size - 1
    words = bits.size // chain.retained.size
    for step in range(blocks):
        block = blocks - 1 - step if forward else step
        option = chain.offsets[block + 1] - 1
        while not _is_set(chain, bits, option * words, option, cell):
            option -= 1
        options[block] = option
        cell -= chain.retained[option]
    return options


@jit
def _is_set(chain: Chain, bits: Bits, word: int, option: int, cell: int) -> bool:
    # Words before an option's first cell and after its last are never written.
    taken = bits[word + cell // BLOCK] >> np.uint64(cell % BLOCK)
    within = chain.first[option] <= cell < chain.end[option]
    return bool(within and taken & np.uint64(1) != 0)
