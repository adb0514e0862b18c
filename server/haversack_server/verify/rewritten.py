"""Buffers that replays write: what differs in them is no rounding, however little it is.

A tolerance is for kernels that add up in another order. A buffer that a probe saw a replay write
was written once more than in the plain run, and where its bits differ that is why: a power
iteration that has nearly converged moves by less than any tolerance, at every step.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from haversack.verify import Facet
from haversack_server.verify.comparison import Closeness, Row
from haversack_server.verify.outcome import Outcome

_RANK = re.compile(r"^rank \d+ ")


def without_tolerance(rows: Iterable[Row], watched: Outcome | None) -> tuple[Row, ...]:
    """Give rows in which no buffer is near enough that the replays of ``watched`` have written."""
    written = set(watched.rewritten) if watched is not None else set()
    return tuple(_strict(row) if _is_written(row, written) else row for row in rows)


def _is_written(row: Row, written: set[str]) -> bool:
    if row.facet is not Facet.BUFFERS or row.closeness is not Closeness.CLOSE:
        return False
    return _RANK.sub("", row.name) in written


def _strict(row: Row) -> Row:
    return replace(
        row, closeness=Closeness.DIFFERENT, note=f"{row.note}, but a replay has written it again"
    )
