"""A chain cut into pieces: a block under one of its options, or several blocks in one segment.

A *segment* runs its blocks under one checkpoint: the first forward keeps the output of the last
block alone, and backward runs them all again, saved or in segments of their own, before it goes
back through them. A piece has moments like a block; what the pieces before it retain comes on top
of each. Knows no budget.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from haversack_server.memory.chain import Option
from haversack_server.plan import nested
from haversack_server.plan.nested import Nest, Ways
from haversack_server.plan.profiled_chain import Inside, ProfiledChain

FORWARD, AGAIN, BACKWARD = "forward", "recomputation", "backward"


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes of a piece at one moment, beside the base of the block ``at``."""

    phase: str
    place: int
    at: int
    own_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Blocks ``first`` up to ``stop``, by ``option`` if it is one; None for a segment.

    ``need_bytes`` is the highest of its moments with their bases. ``nest`` says how a segment runs
    again.
    """

    first: int
    stop: int
    option: int | None
    retained_bytes: int
    need_bytes: int
    extra_ns: int
    nest: Nest = ()


def pieces_of(chain: ProfiledChain) -> tuple[tuple[Piece, ...], ...]:
    """Give all pieces by their first block: its options, then its segments from the shortest on.

    Of segments of one length the cheapest is the last.
    """
    found, ways = [], nested.ways_of(chain)
    for first, options in enumerate(chain.options):
        single = [_block(chain, first, index, option) for index, option in enumerate(options)]
        found.append((*single, *_segments(chain, first, ways)))
    return tuple(found)


def has_segments(chain: ProfiledChain) -> bool:
    """Whether two neighbours can be in a segment."""
    pairs = zip(chain.inside[:-1], chain.inside[1:], strict=True)
    return any(one is not None and other is not None for one, other in pairs)


def _block(chain: ProfiledChain, place: int, index: int, option: Option) -> Piece:
    forward = chain.base(True, place) + option.forward_peak_bytes
    backward = chain.base(False, place) + option.backward_peak_bytes
    return Piece(
        first=place,
        stop=place + 1,
        option=index,
        retained_bytes=option.retained_bytes,
        need_bytes=max(forward, backward),
        extra_ns=option.extra_ns,
    )


def _segments(chain: ProfiledChain, first: int, ways: Ways) -> Iterator[Piece]:
    rows: list[Inside] = []
    left = need = forward_ns = 0
    for place in range(first, len(chain.names)):
        row = chain.inside[place]
        if row is None:
            return
        own = row.peak_bytes if rows else row.recompute.forward_peak_bytes
        need = max(need, chain.base(True, place) + left + own)
        begin = chain.base(False, place) + left + row.begin_bytes
        rows.append(row)
        for way in ways[first, place + 1] if len(rows) > 1 else ():
            yield Piece(
                first=first,
                stop=place + 1,
                option=None,
                retained_bytes=left + row.recompute.retained_bytes,
                need_bytes=max(need, begin, way.peak_bytes + left),
                extra_ns=forward_ns + row.recompute.extra_ns + way.extra_ns,
                nest=way.nest,
            )
        left, forward_ns = left + row.segment_bytes, forward_ns + row.forward_ns


def forward_of(chain: ProfiledChain, piece: Piece) -> Iterator[Moment]:
    """Give the moments of a piece's forward, in their order."""
    if piece.option is None:
        for place, own in nested.plainly(chain, piece.nest):
            yield Moment(FORWARD, place, place, own)
        return
    option = chain.options[piece.first][piece.option]
    yield Moment(FORWARD, piece.first, piece.first, option.forward_peak_bytes)


def backward_of(chain: ProfiledChain, piece: Piece) -> Iterator[Moment]:
    """Give the moments of its backward: a segment runs again, then back through its blocks."""
    if piece.option is None:
        # What the blocks left in the forward: states of the generator, results for later ones.
        left = sum(row.segment_bytes for row in nested.rows_of(chain, piece.nest)[:-1])
        yield from _nest(chain, piece.nest, left)
        return
    option = chain.options[piece.first][piece.option]
    yield Moment(BACKWARD, piece.first, piece.first, option.backward_peak_bytes)


def _nest(chain: ProfiledChain, nest: Nest, kept: int) -> Iterator[Moment]:
    end = nested.last_of(nest)
    last = nested.row_of(chain, end)
    waiting = nested.waiting_bytes(last)
    first, before = nested.blocks_of(nest)[0], list[int]()
    if last.begin_bytes:
        yield Moment(BACKWARD, end, end, kept + last.begin_bytes)
    for each in nest:
        before.append(kept)
        if isinstance(each, int):
            row = nested.row_of(chain, each)
            ahead = last.ahead_bytes if each >= end - 1 and len(nest) > 1 else 0
            # The last block runs again as it does without the others, whose table has what waits.
            rerun = waiting + row.again_peak_bytes
            rerun = row.recompute.backward_peak_bytes if each == end else rerun
            yield Moment(AGAIN, each, end, kept + rerun - ahead)
            kept += row.kept_bytes
        else:
            for place, own in nested.plainly(chain, each):
                yield Moment(AGAIN, place, end, kept + waiting + own)
            kept += nested.kept_bytes(chain, nested.rows_of(chain, each))
    for each, held in zip(reversed(nest), reversed(before), strict=True):
        if isinstance(each, int):
            row = nested.row_of(chain, each)
            own = nested.saved_backward(chain, row) - (row.ahead_bytes if each != first else 0)
            yield Moment(BACKWARD, each, each, held + own)
        else:
            yield from _nest(chain, each, held)
