"""A chain cut into pieces: a block under one of its options, or several blocks in one segment.

A *segment* runs its blocks under one checkpoint: the first forward keeps the output of the last
block alone, and backward runs them all again, saved, before it goes back through them. A piece has
moments like a block; what the pieces before it retain comes on top of each. Knows no budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from haversack_server.memory.chain import Option
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

    ``need_bytes`` is the highest of its moments with their bases.
    """

    first: int
    stop: int
    option: int | None
    retained_bytes: int
    need_bytes: int
    extra_ns: int
    moments: tuple[Moment, ...]

    @property
    def backward_moments(self) -> tuple[Moment, ...]:
        """Those of its backward, in their order: all run again, then back through them."""
        again = tuple(each for each in self.moments if each.phase == AGAIN)
        back = tuple(each for each in self.moments if each.phase == BACKWARD)
        return (*again, *reversed(back))


def pieces_of(chain: ProfiledChain) -> tuple[tuple[Piece, ...], ...]:
    """Give all pieces by their first block: its options, then its segments from the shortest on."""
    found = []
    for first, options in enumerate(chain.options):
        single = [_block(chain, first, index, option) for index, option in enumerate(options)]
        found.append((*single, *_segments(chain, first)))
    return tuple(found)


def has_segments(chain: ProfiledChain) -> bool:
    """Whether two neighbours can be in a segment."""
    pairs = zip(chain.inside[:-1], chain.inside[1:], strict=True)
    return any(one is not None and other is not None for one, other in pairs)


def _block(chain: ProfiledChain, place: int, index: int, option: Option) -> Piece:
    moments = (
        Moment(FORWARD, place, place, option.forward_peak_bytes),
        Moment(BACKWARD, place, place, option.backward_peak_bytes),
    )
    return Piece(
        first=place,
        stop=place + 1,
        option=index,
        retained_bytes=option.retained_bytes,
        need_bytes=_need(chain, moments),
        extra_ns=option.extra_ns,
        moments=moments,
    )


def _segments(chain: ProfiledChain, first: int) -> list[Piece]:
    made, rows = [], list[Inside]()
    for place in range(first, len(chain.names)):
        row = chain.inside[place]
        if row is None:
            break
        rows.append(row)
        if len(rows) > 1:
            made.append(_segment(chain, first, rows))
    return made


def _segment(chain: ProfiledChain, first: int, rows: Sequence[Inside]) -> Piece:
    last, end = first + len(rows) - 1, rows[-1]
    left = [0, *accumulate(row.segment_bytes for row in rows[:-1])]
    saved = [0, *accumulate(row.save.retained_bytes for row in rows)]
    waiting = _waiting_bytes(end)
    moments = []
    for row, place, before, again in zip(
        rows, range(first, last + 1), left, saved[:-1], strict=True
    ):
        own = row.recompute.forward_peak_bytes if place == first else row.peak_bytes
        # The last block runs again as it does without the others, whose table has what waits.
        rerun = waiting + row.save.forward_peak_bytes
        rerun = row.recompute.backward_peak_bytes if place == last else rerun
        moments += [
            Moment(FORWARD, place, place, before + own),
            Moment(AGAIN, place, last, again + rerun),
            Moment(BACKWARD, place, place, again + row.save.backward_peak_bytes),
        ]
    return Piece(
        first=first,
        stop=last + 1,
        option=None,
        retained_bytes=left[-1] + end.recompute.retained_bytes,
        need_bytes=_need(chain, moments),
        extra_ns=sum(row.forward_ns for row in rows[:-1]) + end.recompute.extra_ns,
        moments=tuple(moments),
    )


def _waiting_bytes(end: Inside) -> int:
    """Bound what waits while a segment runs again: gradients of its output, of tied weights.

    All of that and all that the last block saves are live once it has run again; its own output,
    which the block after it may have kept, is not.
    """
    saved = end.save.retained_bytes - end.recompute.retained_bytes
    return max(0, end.recompute.backward_peak_bytes - saved)


def _need(chain: ProfiledChain, moments: Sequence[Moment]) -> int:
    return max(chain.base(each.phase == FORWARD, each.at) + each.own_bytes for each in moments)
