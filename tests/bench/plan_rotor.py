"""Rotor's schedules, solved in slots by the kernel of its recurrence, as pieces that are executed.

What the kernel predicts is not used: its moments are those of rotor's model, and executed schedules
were up to 6 % above it. Of the options rotor knows save and recompute alone.
"""

import numpy as np

from haversack_kernels import segments
from haversack_server.plan import nested
from haversack_server.plan.ladder import Ladder
from haversack_server.plan.nested import Nest
from haversack_server.plan.pieces import Piece

SLOTS = 2000


def schedule(ladder: Ladder, budget_bytes: int) -> tuple[Piece, ...] | None:
    """Solve rotor's recurrence for a budget; None if it has no schedule, or recomputes nothing."""
    columns = columns_of(ladder)
    found = segments.solve(columns, budget_bytes, unit=max(1, budget_bytes // SLOTS))
    if not found.feasible or not found.extra:
        return None
    tree = segments.tree(found.nodes)
    return tuple(_piece(ladder, node, _recomputed(ladder, columns)) for node in tree)


def _recomputed(ladder: Ladder, columns: segments.Chain) -> frozenset[int]:
    """List the kernel's options that recompute their block."""
    rows = [row for options in ladder.chain.options for row in options]
    plain = [row.name for row in rows if row.name in ("save", "recompute")]
    assert len(plain) == columns.offsets[-1]
    return frozenset(index for index, name in enumerate(plain) if name == "recompute")


def _piece(
    ladder: Ladder, node: segments.Block | segments.Segment, recomputed: frozenset[int]
) -> Piece:
    if isinstance(node, segments.Block) or node.first == node.last:
        place = node.block if isinstance(node, segments.Block) else node.first
        again = isinstance(node, segments.Segment) or node.option in recomputed
        names = [row.name for row in ladder.chain.options[place]]
        return ladder.pieces[place][names.index("recompute" if again else "save")]
    return _segment(ladder, _nest(node, recomputed))


def _nest(node: segments.Segment, recomputed: frozenset[int]) -> Nest:
    found: list[int | Nest] = []
    for each in node.children:
        if isinstance(each, segments.Segment):
            found.append(_nest(each, recomputed))
        elif each.option in recomputed and each.block < node.last:
            found.append((each.block,))
        else:
            found.append(each.block)
    return tuple(found)


def _segment(ladder: Ladder, nest: Nest) -> Piece:
    places, rows = nested.blocks_of(nest), nested.rows_of(ladder.chain, nest)
    left = sum(row.segment_bytes for row in rows[:-1])
    return Piece(
        first=places[0],
        stop=places[-1] + 1,
        option=None,
        retained_bytes=left + rows[-1].recompute.retained_bytes,
        need_bytes=0,
        extra_ns=_extra_ns(ladder, nest),
        nest=nest,
    )


def _extra_ns(ladder: Ladder, nest: Nest) -> int:
    """Give the time of a segment that runs again, and of those in it, each to its early stop."""
    inner = [each for each in nest if not isinstance(each, int)]
    own = nested.run_ns(nested.rows_of(ladder.chain, nest))
    return own + sum(_extra_ns(ladder, each) for each in inner)


def columns_of(ladder: Ladder) -> segments.Chain:
    """Write a chain as the kernel takes it, with save and recompute alone."""
    chain, table = ladder.chain, ladder.table
    plain = [
        index
        for place, rows in enumerate(chain.options)
        for index, row in enumerate(rows, int(table.offsets[place]))
        if row.name in ("save", "recompute")
    ]
    counts = [sum(row.name in ("save", "recompute") for row in rows) for rows in chain.options]
    inside = [each is not None for each in chain.inside]
    boundary = [each.recompute.retained_bytes if each else 0 for each in chain.inside]
    peak = [each.recompute.forward_peak_bytes if each else 0 for each in chain.inside]
    time = [each.forward_ns if each else 0 for each in chain.inside]
    return segments.Chain(
        offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        retained=table.retained[plain],
        forward_peak=table.forward_peak[plain],
        backward_peak=table.backward_peak[plain],
        extra=table.extra[plain],
        inside=np.repeat(np.array(inside), counts),
        plain_peak=np.array(peak, dtype=np.int64),
        plain_time=np.array(time, dtype=np.int64),
        boundary=np.array(boundary, dtype=np.int64),
        gathered=np.zeros(len(counts), dtype=np.int64),
        forward_base=table.forward_base,
        backward_base=table.backward_base,
    )
