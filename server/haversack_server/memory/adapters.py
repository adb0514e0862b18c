"""A low-rank adapter beside a product, as tape operations in the adapter's own width of number.

Knows nothing of which products have one (``tuning``), nor of how the product itself runs.
"""

from typing import TYPE_CHECKING

from haversack_server.memory.tuning import Tuning

if TYPE_CHECKING:
    from haversack_server.memory.tape_builder import TapeBuilder


def adapted(
    tape: "TapeBuilder", tuning: Tuning, source: str, base: str, rows: int, sizes: tuple[int, int]
) -> str:
    """Append ``base + scale * B(A(dropout(x)))`` for ``rows`` of ``(inputs, outputs)`` elements."""
    inputs, outputs = sizes
    width = tuning.adapter_bytes
    with tape.frame() as frame:
        wide = source
        if width != tape.itemsize:
            wide = tape.apply("adapter input", [source], rows * inputs * width)
        frame += [base, wide]
        if tuning.dropout:
            wide, full = tape.storage("adapter dropout", rows * inputs * width), wide
            mask = tape.storage("adapter dropout mask", rows * inputs, 0)
            tape.add("adapter dropout", [full], [wide, mask], [mask])
        low = _small(tape, "adapter A", wide, (rows * tuning.rank, inputs * tuning.rank), width)
        high = _small(tape, "adapter B", low, (rows * outputs, outputs * tuning.rank), width)
        scaled = tape.apply("adapter scaled", [high], rows * outputs * width)
        total = rows * outputs * max(width, tape.itemsize)
        result = tape.passing("adapted", [base, scaled], total)
        if total == tape.size(base):
            return result
        return tape.apply("cast", [result], tape.size(base))


def _small(tape: "TapeBuilder", name: str, source: str, counts: tuple[int, int], width: int) -> str:
    """Append one of an adapter's products; ``counts`` are elements of its result and its weight."""
    results, weights = counts
    result = tape.storage(name, results * width)
    tape.add(name, [source], [result], [source], parameter_bytes=weights * width)
    return result
