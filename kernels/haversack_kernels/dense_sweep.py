"""The inner loops of the dense knapsack DP: a row of cells, improved in place, 64 at a step.

``row[MARGIN + c]`` is the largest gain within capacity ``c``. A candidate improves it by

    row[c] = max(row[c], row[c - size] + gain)      for c from its high cell down to its low cell

and each comparison leaves a decision bit, set if the candidate is taken there. Going down lets one
row serve both "before" and "after". No gain lifts the margin above zero, so the block around
``c = size`` needs no loop of its own.

A block is one LLVM vector operation: numba's own loop tests every index for being negative, does
not vectorise, and widens int32 to int64. On a Zen 4 core that makes 16 Gcell/s int32 and 7.4 int64
for rows in L2, of 19 and 9.8 in L1, where loads, comparisons and the joining of masks bind; copying
as many bytes makes 14 and 6.9. The row starts on a cache line: elsewhere it takes a quarter longer.

Rows beyond the cache are swept by a *wavefront*: a group of candidates in one descent, each
trailing the one before by its own size in whole chunks, so that it finds the cells it reads
improved by all before it and by none after. Exact: the bits are those of one candidate at a time.

Knows nothing of where bits go or which cells are needed: that is ``haversack_kernels.dense_rows``.
"""

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from haversack_kernels._jit import CancelFlag, Int64, jit
from haversack_kernels.arena import LINE
from haversack_kernels.dense_target import is_zen4

UInt64: TypeAlias = NDArray[np.uint64]
Cells: TypeAlias = NDArray[Any]
"""int32, float64 that holds integers, or int64: one kernel is compiled for each."""

BLOCK = 64
MARGIN = BLOCK
WHOLE_ROW = 40
"""As ``chunk_shift``: a chunk is 2^40 blocks, more than any row has."""

DONE, CANCELLED, OVERFLOW = range(3)

INDEX = ir.IntType(32)


class Rows(NamedTuple):
    """Hold, per candidate in the order of the sweep, what it is and which cells it improves.

    ``before`` is the gain of all earlier candidates together, which is what cells hold that no
    sweep has reached yet. The word of block ``b`` goes to ``place + (b & mask)``.
    """

    size: Int64
    gain: Cells
    before: Cells
    low: Int64
    high: Int64
    place: Int64
    mask: Int64


@intrinsic
def improve(
    typing: Any, row: Any, at: Any, source: Any, gain: Any, bits: Any, word: Any
) -> tuple[Any, Any]:
    """Improve the 64 cells from ``row[at]`` by those from ``row[source]`` plus ``gain``.

    The decisions go to ``bits[word]``, the lowest cell's to the lowest bit. ``source < at``, and
    ``at`` is a multiple of 64.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row, at, source, gain, bits, word = arguments
        cells = context.make_array(signature.args[0])(context, builder, row).data
        words = context.make_array(signature.args[4])(context, builder, bits).data
        block, size = ir.VectorType(gain.type, BLOCK), context.get_abi_sizeof(gain.type)
        integers = isinstance(gain.type, ir.IntType)
        load, store = (_permuted, _store_halves) if integers and is_zen4() else (_load, _store)
        here = _load(builder, cells, at, block, size)
        there = load(builder, cells, source, block, size)
        gains = _repeated(builder, gain, BLOCK)
        moved = builder.add(there, gains) if integers else builder.fadd(there, gains)
        compare = builder.icmp_signed if integers else builder.fcmp_ordered
        taken = compare(">", moved, here)
        best = builder.select(taken, moved, here)
        builder.store(best, _pointer(builder, cells, at, block), align=size)
        store(builder, taken, words, word)
        return context.get_dummy_value()

    return types.void(row, types.intp, types.intp, row.dtype, bits, types.intp), generate


def _pointer(builder: Any, data: Any, index: Any, vector: Any) -> Any:
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def _load(builder: Any, data: Any, index: Any, vector: Any, size: int) -> Any:
    return builder.load(_pointer(builder, data, index, vector), align=size)


def _repeated(builder: Any, value: Any, count: int) -> Any:
    empty = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(INDEX, 0))
    return builder.shuffle_vector(first, empty, _places([0] * count))


def _places(indices: Iterable[int]) -> Any:
    constants = list(indices)
    return ir.Constant(ir.VectorType(INDEX, len(constants)), constants)


def _permuted(builder: Any, cells: Any, source: Any, block: Any, size: int) -> Any:
    """Load a block that starts anywhere from the aligned lines that it lies on.

    A load across two lines takes the cycles of two; a permutation of two registers runs beside.
    """
    lanes = LINE // size
    line, number = ir.VectorType(block.element, lanes), ir.IntType(8 * size)
    offset = builder.and_(source, ir.Constant(source.type, lanes - 1))
    start = builder.sub(source, offset)
    places = builder.add(
        _repeated(builder, builder.trunc(offset, number) if size < 8 else offset, lanes),
        ir.Constant(ir.VectorType(number, lanes), list(range(lanes))),
    )
    lines = [
        _load(builder, cells, builder.add(start, ir.Constant(source.type, at)), line, size)
        for at in range(0, BLOCK + lanes, lanes)
    ]
    permute = builder.module.declare_intrinsic(
        f"llvm.x86.avx512.vpermi2var.{'d' if size == 4 else 'q'}.512",
        fnty=ir.FunctionType(line, [line, places.type, line]),
    )
    parts = [builder.call(permute, [low, places, high]) for low, high in itertools.pairwise(lines)]
    while len(parts) > 1:
        both = _places(range(2 * parts[0].type.count))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [builder.shuffle_vector(low, high, both) for low, high in pairs]
    return parts[0]


def _store(builder: Any, taken: Any, words: Any, word: Any) -> None:
    decisions = builder.bitcast(taken, ir.IntType(BLOCK))
    builder.store(decisions, builder.gep(words, [word]))


def _store_halves(builder: Any, taken: Any, words: Any, word: Any) -> None:
    """Store the decisions as two numbers of 32 bits: joining them costs more than storing twice.

    Atomic, or LLVM would join them again.
    """
    half = ir.IntType(BLOCK // 2)
    first = builder.bitcast(builder.gep(words, [word]), half.as_pointer())
    for i in (0, 1):
        lanes = _places(range(i * BLOCK // 2, (i + 1) * BLOCK // 2))
        decisions = builder.bitcast(builder.shuffle_vector(taken, taken, lanes), half)
        builder.store_atomic(decisions, builder.gep(first, [ir.Constant(INDEX, i)]), "unordered", 4)


@jit
def sweep(
    row: Cells,
    rows: Rows,
    ends: Int64,
    chunk_shift: int,
    bits: UInt64,
    most: int,
    cancel: CancelFlag,
    progress: Int64,
) -> tuple[int, int]:
    """Improve the row by every candidate, in groups that end at ``ends``.

    A group moves by chunks of 2^chunk_shift blocks. Returns DONE, CANCELLED or OVERFLOW, the last
    if a cell would exceed ``most``, and the number of candidates done, which is also added to
    ``progress[0]``. The cancel flag is read before each chunk: of a group of one, each candidate.
    """
    begin, filled = 0, _fill(row, -MARGIN, 0, -most - 1)
    filled = _fill(row, filled, BLOCK, 0)
    for end in ends:
        for i in range(begin, end):
            filled = _fill(row, filled, ((rows.high[i] >> 6) + 1) << 6, rows.before[i])
        # Rows never fall towards higher cells, so the highest shows the first overflow. A sum of
        # gains that may overflow is swept one candidate at a time.
        if row[MARGIN + rows.high[begin] - rows.size[begin]] > most - rows.gain[begin]:
            return OVERFLOW, begin
        if not _descend(row, rows, begin, end, chunk_shift, bits, cancel):
            return CANCELLED, begin
        progress[0] += end - begin
        begin = end
    return DONE, begin


@jit
def _fill(row: Cells, filled: int, until: int, gain: Any) -> int:
    """Write ``gain`` to the cells that have none yet; return how many have one now."""
    # Unsigned, or every index is tested for being negative and nothing vectorises.
    for at in range(np.uint64(MARGIN + filled), np.uint64(MARGIN + until)):
        row[at] = gain
    return max(filled, until)


@jit
def _descend(
    row: Cells,
    rows: Rows,
    begin: int,
    end: int,
    chunk_shift: int,
    bits: UInt64,
    cancel: CancelFlag,
) -> bool:
    """Sweep one group from its highest chunk down, each candidate behind the one before."""
    shift = chunk_shift + 6
    top = rows.high[end - 1] >> shift
    lag, steps = 0, 0
    for i in range(begin, end):
        lag += 0 if i == begin else ((rows.size[i] - 1) >> shift) + 1
        steps = max(steps, top - (rows.low[i] >> shift) + lag + 1)
    for step in range(steps):
        if cancel[0] != 0:
            return False
        chunk = top - step
        for i in range(begin, end):
            chunk += 0 if i == begin else ((rows.size[i] - 1) >> shift) + 1
            if chunk > top:
                break
            first = max(rows.low[i] >> 6, chunk << chunk_shift)
            last = min(rows.high[i] >> 6, ((chunk + 1) << chunk_shift) - 1)
            _improve_blocks(row, rows, i, first, last, bits)
    return True


@jit
def _improve_blocks(row: Cells, rows: Rows, i: int, first: int, last: int, bits: UInt64) -> None:
    size, gain, place, mask = rows.size[i], rows.gain[i], rows.place[i], rows.mask[i]
    for block in range(last, first - 1, -1):
        at = MARGIN + (block << 6)
        improve(row, at, at - size, gain, bits, place + (block & mask))  # type: ignore[call-arg]
