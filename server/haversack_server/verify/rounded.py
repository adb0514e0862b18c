"""Takes a gradient for rounding that is no further off than rounding was measured to move it.

How far another order of sums moves a gradient depends on the model: behind a few normalisations a
last bit grows to a hundred. So where gradients alone are outside their tolerance, plain runs are
made once more with losses that are multiplied by a number, and gradients divided by it: the same
gradients, every one of their roundings another. A backward that does more than multiply and add
(a hook that clips) would be another one by that; it shows with 2, which rounds nothing, and then
nothing is taken from these runs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from haversack.verify import Facet
from haversack_server.verify.comparison import NOISE_FACTOR, Closeness, Row
from haversack_server.verify.outcome import Outcome

EXACT = 2.0
# Against reentrant variants of five small encoder-decoders of transformers (float32, two of them in
# bfloat16; 3 seeds, one and two microbatches; torch 2.13 on the CPU), the largest difference of a
# gradient is at most 1.3 times the largest of these three, and 2.2 times the first alone.
FACTORS = (1.25, 0.7, 3.0)
_GRADIENTS = (Facet.INPUT_GRADIENTS, Facet.PARAMETER_GRADIENTS)


def may_be_rounding(rows: Iterable[Row]) -> bool:
    """Whether all that differs are gradients that may be off by rounding alone."""
    differ = [row for row in rows if row.closeness is Closeness.DIFFERENT]
    return bool(differ) and all(row.has_no_direction for row in differ)


def is_exact(doubled: Outcome) -> bool:
    """Whether a plain run with ``EXACT`` left the gradients of the plain run, bit for bit."""
    return doubled.raised is None and not any(row.facet in _GRADIENTS for row in doubled.rows)


def as_measured(rows: Sequence[Row], rounded: Iterable[Outcome]) -> tuple[Row, ...]:
    """Give the rows, those close that differ by no more than twice what ``rounded`` runs do."""
    most: dict[tuple[Facet, str], float] = {}
    for row in (row for outcome in rounded if outcome.raised is None for row in outcome.rows):
        key = row.facet, row.name
        most[key] = max(most.get(key, 0.0), row.max_difference or 0.0)
    return tuple(_measured(row, most.get((row.facet, row.name), 0.0)) for row in rows)


def _measured(row: Row, noise: float) -> Row:
    difference = row.max_difference
    if row.closeness is not Closeness.DIFFERENT or not row.has_no_direction or difference is None:
        return row
    if difference > NOISE_FACTOR * noise:
        return row
    note = f"largest difference {difference:.3g}, and up to {noise:.3g} where rounding is measured"
    return replace(row, closeness=Closeness.CLOSE, note=note, is_rounding=True)
