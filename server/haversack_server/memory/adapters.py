"""A low-rank adapter beside a product, as tape operations in the adapter's own width of number.

Knows nothing of which products have one (``tuning``), nor of how the product itself runs.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from haversack_server.memory.tuning import Tuning

INDEX_BYTES = 8

if TYPE_CHECKING:
    from haversack_server.memory.tape_builder import TapeBuilder


def adapted(
    tape: "TapeBuilder",
    tuning: Tuning,
    source: str,
    base: str,
    rows: int,
    sizes: tuple[int, int],
    parts: Mapping[str, int],
) -> str:
    """Append ``base + scale * B(A(dropout(x)))`` for ``rows`` of ``(inputs, outputs)`` elements.

    Of a product of several ``parts`` only those that have an adapter are made; they are then copied
    into zeros, by an operation that keeps its source (litgpt/lora.py, LoRAQKVLinear.zero_pad).
    """
    inputs, outputs = sizes
    width = tuning.adapter_bytes
    made = [count for name, count in parts.items() if tuning.adapts(name)] or [outputs]
    rank = tuning.rank * len(made)
    with tape.frame() as frame:
        wide = source
        if width != tape.itemsize:
            wide = tape.apply("adapter input", [source], rows * inputs * width)
        frame += [base, wide]
        if tuning.dropout:
            wide = _dropped(tape, wide, rows * inputs, width)
        low = _small(tape, "adapter A", wide, (rows * rank, inputs * rank), width)
        weights = sum(made) * tuning.rank
        high = _small(tape, "adapter B", low, (rows * sum(made), weights), width)
        if sum(made) < outputs:
            high = _among_zeros(tape, high, sum(made), rows * outputs * width)
        scaled = tape.apply("adapter scaled", [high], rows * outputs * width)
        total = rows * outputs * max(width, tape.itemsize)
        result = tape.passing("adapted", [base, scaled], total)
        if total == tape.size(base):
            return result
        return tape.apply("cast", [result], tape.size(base))


def _dropped(tape: "TapeBuilder", source: str, count: int, width: int) -> str:
    """Append the dropout before an adapter; its mask is kept."""
    result = tape.storage("adapter dropout", count * width)
    mask = tape.storage("adapter dropout mask", count, 0)
    tape.add("adapter dropout", [source], [result, mask], [mask])
    return result


def _among_zeros(tape: "TapeBuilder", source: str, made: int, size_bytes: int) -> str:
    """Append the copy of ``made`` outputs to their places among all; it keeps source and places."""
    places = tape.storage("adapter places", made * INDEX_BYTES, 0)
    tape.add("adapter places", [], [places])
    return tape.apply("adapter among zeros", [source], size_bytes, [source, places])


def _small(tape: "TapeBuilder", name: str, source: str, counts: tuple[int, int], width: int) -> str:
    """Append one of an adapter's products; ``counts`` are elements of its result and its weight."""
    results, weights = counts
    result = tape.storage(name, results * width)
    tape.add(name, [source], [result], [source], parameter_bytes=weights * width)
    return result
