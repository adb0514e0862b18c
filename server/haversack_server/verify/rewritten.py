"""Takes a tolerance away where a probe saw that it is not rounding that differs.

A tolerance is for kernels that add up in another order. A buffer that a probe saw a replay write
was written once more than in the plain run, and where its bits differ that is why: a power
iteration that has nearly converged moves by less than any tolerance, at every step. And a gradient
that is near enough only if nothing but rounding can differ is not so where a replay was seen to
compute something else, or to find something else than its forward did.

A trained weight that differs although a probe saw no replay write it, and whose gradient differs,
follows from that gradient, as far as was seen: a hook has stepped by it. That is a warning.
"""

from collections.abc import Iterable
from dataclasses import replace

from haversack.verify import Facet
from haversack_server.verify.comparison import FIRST_STEP, OF_RANK, Closeness, Row
from haversack_server.verify.outcome import Outcome


def without_tolerance(
    plain: Outcome, checkpointed: Outcome, watched: Outcome | None, traced: Outcome | None
) -> tuple[Row, ...]:
    """Give the rows of ``checkpointed``, as far from the plain run as probes let them be taken for.

    ``watched`` and ``traced`` are None where no probe has looked.
    """
    written = set(watched.rewritten) if watched is not None else set()
    differ = checkpointed.rng != plain.rng or _replays_differ(watched, traced)
    stepped = _with_other_gradients(checkpointed.rows) - written if watched is not None else set()
    return tuple(_strict(_followed(row, stepped), written, differ) for row in checkpointed.rows)


def _followed(row: Row, stepped: set[str]) -> Row:
    if row.facet is not Facet.BUFFERS or _bare(row) not in stepped:
        return row
    note = f"{row.note}, which follows from its gradient, as far as was seen"
    return replace(row, closeness=Closeness.CLOSE, note=note)


def _with_other_gradients(rows: Iterable[Row]) -> set[str]:
    return {_bare(row) for row in rows if row.facet is Facet.PARAMETER_GRADIENTS}


def _bare(row: Row) -> str:
    """Name what a row is of, in whichever rank and step."""
    return OF_RANK.sub("", row.name).replace(FIRST_STEP, "", 1)


def _replays_differ(watched: Outcome | None, traced: Outcome | None) -> bool:
    """Whether a replay saved other values, ran other operations, or found another state."""
    if watched is not None:
        saved_others = any(each.different_count for each in watched.saved)
        if saved_others or watched.first_different_call is not None or watched.changes:
            return True
    return traced is not None and traced.first_difference is not None


def _strict(row: Row, written: set[str], differ: bool) -> Row:
    why = ""
    if row.closeness is Closeness.CLOSE and row.facet is Facet.BUFFERS:
        why = "a replay has written it again" if _bare(row) in written else ""
    elif row.is_rounding and differ:
        why = "a replay was not what its forward was"
    return (
        replace(row, closeness=Closeness.DIFFERENT, note=f"{row.note}, but {why}") if why else row
    )
