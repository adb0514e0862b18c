"""torchao's conversion of a weight to 4 bits and back: the tensors it makes, in the code's order.

Each function makes its tensors on a caching allocator and frees each with the last name for it;
what it returns is held by the caller. Weights are in 16 bits. Source: pytorch/ao,
torchao/dtypes/nf4tensor.py, ``NF4Tensor.from_tensor`` and ``get_original_weight``, as they were in
April 2024 and after pull request 196 of May 2024, which takes a weight in chunks. A conversion that
pull request 315 of pytorch/ao measured is met to the byte, allocated and reserved
(tests/unit/memory/test_nf4_conversion.py). Knows no model.
"""

from dataclasses import dataclass

from haversack_server.memory.replayed_memory import Memory, Tensor
from haversack_server.memory.tuning import BLOCK, BLOCKS_PER_GROUP

WIDTH = 2  # bfloat16, which from_tensor asks for
LONG = 8  # torch.int64: places of a minimum, indices
VALUES = 16  # that 4 bits can name: one difference for each
TABLE = VALUES * WIDTH
CHUNK = 1024**2  # elements at a time: CHUNK_SIZE


@dataclass(frozen=True, slots=True)
class Conversion:
    """A version of the conversion.

    ``chunk`` elements have their table of differences at once, all of a weight if None; ``own``:
    factors of groups are copied, so that they do not keep those of all blocks alive.
    """

    chunk: int | None = None
    own: bool = False


def to_nf4(memory: Memory, elements: int, conversion: Conversion) -> list[Tensor]:
    """Convert a weight, which the caller holds."""
    values = memory.new(TABLE)
    scalers = _scalers(memory, elements // BLOCK, elements, conversion)
    return [values, *scalers, _packed(memory, elements, conversion)]


def original(memory: Memory, elements: int) -> Tensor:
    """Make the weight in 16 bits again: both halves of every byte, each with its scaler."""
    half, blocks = elements // 2, elements // BLOCK
    indices = []
    for _ in range(2):
        shifted = memory.new(half)
        indices.append(memory.new(half * LONG))
        memory.drop(shifted)
    looked_up = [memory.new(half * WIDTH) for _ in range(2)]
    scalers = _chained(memory, [blocks * 2 * WIDTH, blocks * WIDTH, blocks * WIDTH])
    scaled = []
    for _ in range(2):
        repeated = memory.new(half * WIDTH)
        scaled.append(memory.new(half * WIDTH))
        memory.drop(repeated)
    weight = memory.new(elements * WIDTH)
    memory.drop(*indices, *looked_up, scalers, *scaled)
    return weight


def _scalers(memory: Memory, blocks: int, elements: int, conversion: Conversion) -> list[Tensor]:
    """Quantize the scalers of blocks to 8 bits; give them, their factors and their mean."""
    groups = blocks // BLOCKS_PER_GROUP
    first = _maxima(memory, elements, BLOCK)
    mean = memory.new(WIDTH)
    centred = memory.new(blocks * WIDTH)
    memory.drop(first)
    largest = _maxima(memory, blocks, BLOCKS_PER_GROUP)
    # Twice the expanded maxima, and 256 over them: both have an entry for every block.
    factors = _chained(memory, [blocks * WIDTH] * 2)
    clamped = _chained(memory, [blocks * WIDTH] * 3)  # scaled, rounded, clamped
    quantized = memory.new(blocks)
    if conversion.own:
        copied = memory.new(groups * WIDTH)
        memory.drop(factors)
        factors = copied
    memory.drop(clamped, centred, largest)
    return [quantized, factors, mean]


def _packed(memory: Memory, elements: int, conversion: Conversion) -> Tensor:
    """Scale a weight, find the nearest value of each element, and put two in a byte."""
    scalers = _maxima(memory, elements, BLOCK)
    scaled = memory.new(elements * WIDTH)
    if conversion.chunk is None:
        nearest, width = _nearest(memory, elements), LONG
    else:
        nearest, width = memory.new(elements), 1
        # Every chunk finds what the one before freed, so that one stands for all.
        chunk = min(conversion.chunk, elements)
        memory.drop(_chained(memory, [chunk], _nearest(memory, chunk)))
    joined = _chained(memory, [elements // 2 * width] * 2)  # shifted, and with the other half
    packed = memory.new(elements // 2)
    memory.drop(joined, nearest, scaled, scalers)
    return packed


def _nearest(memory: Memory, elements: int) -> Tensor:
    """Find the nearest of 16 values: a table of differences, and one of what they are without sign.

    ``(value - nf4).abs()``, then ``min(dim=-1)`` with its values and places.
    """
    table = _chained(memory, [elements * TABLE] * 2)
    least = memory.new(elements * WIDTH)
    places = memory.new(elements * LONG)
    memory.drop(least, table)
    return places


def _maxima(memory: Memory, elements: int, block: int) -> Tensor:
    """Find the largest of every block, without sign; its place is found too, and dropped."""
    absolute = memory.new(elements * WIDTH)
    largest = memory.new(elements // block * WIDTH)
    places = memory.new(elements // block * LONG)
    memory.drop(absolute, places)
    return largest


def _chained(memory: Memory, sizes: list[int], before: Tensor | None = None) -> Tensor:
    """Make tensors one from the other, each freed once the next is made; give the last."""
    made = before
    for size_bytes in sizes:
        following = memory.new(size_bytes)
        if made is not None:
            memory.drop(made)
        made = following
    assert made is not None
    return made
