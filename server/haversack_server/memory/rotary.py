"""Rotary positions as tape operations, in each way that a family writes them.

None of them keeps its queries or keys, since the tables need no gradient; the tables of a model
belong to its embedding unit. What differs is what is alive meanwhile, and GPT-J's own copies of the
tables.
"""

from haversack_server.memory.architecture import Architecture
from haversack_server.memory.parts import FLOAT_BYTES, cast
from haversack_server.memory.tape_builder import TapeBuilder
from haversack_server.memory.traits import Rotary

_IN_FLOAT = (Rotary.COMPLEX, Rotary.PAIRS_FLOAT)


def rotary(
    tape: TapeBuilder, model: Architecture, pair: tuple[str, str], seq: int, held: list[str]
) -> tuple[str, str]:
    """Turn queries and keys, sequences of ``seq``; return the turned ones.

    ``held`` takes what the layer's Python variables name until attention is done.
    """
    if model.rotary in _IN_FLOAT:
        return in_float(tape, pair)
    query, key = (_one(tape, model, source, seq, held) for source in pair)
    return query, key


def _one(tape: TapeBuilder, model: Architecture, source: str, seq: int, held: list[str]) -> str:
    kind = model.rotary
    if kind is Rotary.NONE:
        return source
    size = model.rotary_size or model.head_dim
    if size == model.head_dim and kind is Rotary.HALVES_AND_REST:
        turned = halves(tape, source)
        held += [turned, source] if model.parts_held else []
        return tape.passing("with no rest", [turned], tape.wide_size(source))
    if size == model.head_dim:
        return _turned(tape, model, source, seq, size)
    part = tape.size(source) * size // model.head_dim
    rest = tape.size(source) - part
    first = tape.view("turned part", source, part, copies_gradient=True)
    second = tape.view("rest", source, rest, copies_gradient=True)
    with tape.frame() as frame:
        turned = _turned(tape, model, first, seq, size)
        frame.append(turned)
        held += [turned, source] if model.parts_held else []
        # Autocast concatenates in the widest type, and copies what is narrower.
        second = cast(tape, second, tape.wide_size(second))
        return tape.apply("with the rest", [turned, second], tape.wide_size(source))


def _turned(tape: TapeBuilder, model: Architecture, source: str, seq: int, size: int) -> str:
    if model.rotary is Rotary.PAIRS:
        return _pairs(tape, source, seq, size)
    return halves(tape, source)


def halves(tape: TapeBuilder, source: str) -> str:
    """Append ``x * cos + rotate_half(x) * sin``."""
    size, wide = tape.size(source), tape.wide_size(source)
    turned = tape.apply("x cos", [tape.widened(source)], wide)
    first = tape.view("first half", source, size // 2, copies_gradient=True)
    second = tape.view("second half", source, size // 2, copies_gradient=True)
    negative = tape.apply("- second half", [second], size // 2)
    swapped = tape.passing("rotate half", [negative, first], size)
    with tape.frame() as frame:
        frame.append(negative)
    across = tape.apply("rotated sin", [tape.widened(swapped)], wide)
    return tape.passing("rotary", [turned, across], wide)


def _pairs(tape: TapeBuilder, source: str, seq: int, size: int) -> str:
    """As halves, with neighbours stacked; both tables are repeated here, and kept."""
    bytes_each = seq * size * tape.itemsize
    tables = [tape.storage(name, bytes_each, 0) for name in ("sin", "cos")]
    tape.add("tables", [], tables)
    whole = tape.size(source)
    turned = tape.apply("x cos", [source], whole, [tables[1]])
    stacked = tape.apply("rotate every two", [source], whole)
    across = tape.apply("rotated sin", [stacked], whole, [tables[0]])
    return tape.passing("rotary", [turned, across], whole)


def in_float(tape: TapeBuilder, pair: tuple[str, str]) -> tuple[str, str]:
    """Turn copies in fp32, as complex numbers or as stacked neighbours, and cast them back."""
    factor = FLOAT_BYTES // tape.itemsize
    with tape.frame() as frame:
        copies = [tape.apply("in fp32", [row], tape.size(row) * factor) for row in pair]
        turned = [_stacked(tape, copy) for copy in copies]
        frame += [*copies, *turned]
        query, key = (
            tape.apply("as they were", [wide], tape.size(wide) // factor) for wide in turned
        )
        return query, key


def _stacked(tape: TapeBuilder, copy: str) -> str:
    size = tape.size(copy)
    turned = tape.apply("x cos", [copy], size)
    stacked = tape.apply("rotate every two", [copy], size)
    across = tape.apply("rotated sin", [stacked], size)
    return tape.passing("rotary", [turned, across], size)


def strided(tape: TapeBuilder, pair: tuple[str, str]) -> tuple[str, str]:
    """Append the four products of every other element, two sums, and their concatenation."""
    query, key = (_strided(tape, source) for source in pair)
    return query, key


def _strided(tape: TapeBuilder, source: str) -> str:
    size = tape.size(source)
    even = tape.view("even", source, size // 2, copies_gradient=True)
    odd = tape.view("odd", source, size // 2, copies_gradient=True)
    with tape.frame() as frame:
        parts = [
            tape.passing(
                name,
                [
                    tape.apply("times cos", [first], size // 2),
                    tape.apply("times sin", [second], size // 2),
                ],
                size // 2,
            )
            for name, first, second in (("first", even, odd), ("second", odd, even))
        ]
        frame += parts
        return tape.apply("rotary", parts, size)
