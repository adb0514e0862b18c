"""What happens when a segment runs again: some blocks are saved, others are a segment of their own.

A *nest* has the blocks of a segment in their order: a number is a block that is saved when the
segment runs again, a nest among them is run plainly, and once more when its turn in backward comes
(rotor's persistent schedules: Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal
checkpointing for heterogeneous chains", Inria RR-9302). The last block of a nest is saved. Bytes
are exact, there are no slots. Knows no budget.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from haversack_server.plan.profiled_chain import Inside, ProfiledChain

Nest: TypeAlias = tuple["int | Nest", ...]
Range = tuple[int, int]

MOST_BLOCKS = 24
"""Longest row of blocks whose segments may have segments in them."""
MOST_WAYS = 12
"""Ways to run one range again that are offered; between them others are left out."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way for a range to run again and backward.

    ``peak_bytes`` has the bases in it, and neither what is kept before the range nor what its
    blocks left in the first forward. ``extra_ns`` is that of nests in the range, without the run of
    the range itself.
    """

    peak_bytes: int
    extra_ns: int
    nest: Nest


Ways: TypeAlias = Mapping[Range, Sequence[Way]]


class Ranges:
    """The ways of every range of a row of blocks that may be in one segment, from ``first`` on."""

    def __init__(self, chain: ProfiledChain, first: int, rows: Sequence[Inside]) -> None:
        self._chain, self._first, self._rows = chain, first, rows
        self._nests = len(rows) <= MOST_BLOCKS and not any(row.whole_bytes for row in rows)
        self.ways: dict[Range, list[Way]] = {}
        self._later: dict[Range, list[Way]] = {}
        for length in range(1, len(rows) + 1):
            for start in range(first, first + len(rows) - length + 1):
                self._add(start, start + length)

    def _add(self, start: int, stop: int) -> None:
        """Find the ways of a range, and those of the same as the later part of a longer one."""
        self.ways[start, stop] = self._later[start, stop] = self._of(start, stop, ahead_bytes=0)
        if ahead_bytes := self._row(start).ahead_bytes:
            self._later[start, stop] = self._of(start, stop, ahead_bytes=ahead_bytes)

    def _row(self, place: int) -> Inside:
        return self._rows[place - self._first]

    def _of(self, start: int, stop: int, ahead_bytes: int) -> list[Way]:
        end = self._row(stop - 1)
        again = self._chain.base(False, stop - 1) + waiting_bytes(end)
        found = list(self._saved(start, stop, again, ahead_bytes))
        for cut in range(start + 1, stop if self._nests else start + 1):
            found += self._nested(start, cut, stop, again)
        return _best(found)

    def _saved(self, start: int, stop: int, again: int, ahead_bytes: int) -> Iterator[Way]:
        row = self._row(start)
        base = self._chain.base(False, start) - ahead_bytes
        back = base + saved_backward(self._chain, row)
        if start + 1 == stop:
            yield Way(max(base + row.recompute.backward_peak_bytes, back), 0, (start,))
            return
        if start + 2 == stop:
            again -= self._row(stop - 1).ahead_bytes
        least = max(again + row.again_peak_bytes, back)
        for way in self._later[start + 1, stop]:
            peak = max(least, row.kept_bytes + way.peak_bytes)
            yield Way(peak, way.extra_ns, (start, *way.nest))

    def _nested(self, start: int, cut: int, stop: int, again: int) -> Iterator[Way]:
        rows = self._rows[start - self._first : cut - self._first]
        plain = tuple(range(start, cut))
        least = max(
            again + max(own for _, own in plainly(self._chain, plain)),
            self._chain.base(False, cut - 1) + rows[-1].begin_bytes,
        )
        kept = kept_bytes(self._chain, rows)
        extra = run_ns(rows)
        inner, later = self.ways[start, cut], self.ways[cut, stop]
        heights = sorted(
            {max(least, way.peak_bytes) for way in inner}
            | {max(least, way.peak_bytes + kept) for way in later}
        )
        for height in heights:
            one, other = _within(inner, height), _within(later, height - kept)
            if one is not None and other is not None:
                yield Way(height, extra + one.extra_ns + other.extra_ns, (one.nest, *other.nest))


def _within(ways: Sequence[Way], most_bytes: int) -> Way | None:
    """Give the cheapest of ways by rising peak and falling extra whose peak is within."""
    place = bisect_right(ways, most_bytes, key=lambda way: way.peak_bytes)
    return ways[place - 1] if place else None


def _best(found: Sequence[Way]) -> list[Way]:
    """Keep the ways that no other beats, by rising peak; the cheapest and the lowest stay."""
    kept: list[Way] = []
    for way in sorted(found, key=lambda way: (way.peak_bytes, way.extra_ns)):
        if not kept or way.extra_ns < kept[-1].extra_ns:
            kept.append(way)
    if len(kept) <= MOST_WAYS:
        return kept
    last = len(kept) - 1
    return [kept[place * last // (MOST_WAYS - 1)] for place in range(MOST_WAYS)]


def waiting_bytes(end: Inside) -> int:
    """Give what waits while a segment runs again: gradients of its output, of tied weights.

    Without a figure it is bounded: all of that and all that the last block saves are live once it
    has run again; its own output, which the block after it may have kept, is not.
    """
    if end.waiting_bytes is not None:
        return end.waiting_bytes
    saved = end.save.retained_bytes - end.recompute.retained_bytes
    return max(0, end.recompute.backward_peak_bytes - saved)


def saved_backward(chain: ProfiledChain, row: Inside) -> int:
    """Give the highest bytes of the backward of a block that was saved in the second run.

    Its own state is kept meanwhile, which rows of a block run again have in them.
    """
    return row.save.backward_peak_bytes + chain.region_bytes


def plainly(chain: ProfiledChain, nest: Nest) -> Iterator[tuple[int, int]]:
    """Give the highest bytes of each block, while they run in turn and nothing is saved."""
    left, places = 0, blocks_of(nest)
    for place in places:
        row = row_of(chain, place)
        own = row.peak_bytes if place > places[0] else row.recompute.forward_peak_bytes
        yield place, left + own
        left += row.segment_bytes


def kept_bytes(chain: ProfiledChain, rows: Sequence[Inside]) -> int:
    """Give what a nest keeps until its turn; states of the generator are the segment's."""
    left = sum(row.segment_bytes for row in rows[:-1]) + rows[-1].recompute.retained_bytes
    return left - len(rows) * chain.region_bytes


def run_ns(rows: Sequence[Inside]) -> int:
    """Give the time of running blocks once more; the last one stops early."""
    return sum(row.forward_ns for row in rows[:-1]) + rows[-1].recompute.extra_ns


def blocks_of(nest: Nest) -> tuple[int, ...]:
    """Give the blocks of a nest, those of the nests in it among them."""
    found = [(each,) if isinstance(each, int) else blocks_of(each) for each in nest]
    return tuple(itertools.chain.from_iterable(found))


def last_of(nest: Nest) -> int:
    """Give the last block, which is saved."""
    last = nest[-1]
    assert isinstance(last, int)
    return last


def row_of(chain: ProfiledChain, place: int) -> Inside:
    """Give the figures of a block that is in a segment."""
    row = chain.inside[place]
    assert row is not None
    return row


def rows_of(chain: ProfiledChain, nest: Nest) -> list[Inside]:
    """Give the figures of the blocks of a nest."""
    return [row_of(chain, place) for place in blocks_of(nest)]


def ways_of(chain: ProfiledChain) -> Ways:
    """Find the ways of every range of blocks that may be in one segment."""
    found: dict[Range, list[Way]] = {}
    for places in _rows(chain):
        rows = [row_of(chain, place) for place in places]
        found.update(Ranges(chain, places[0], rows).ways)
    return found


def gathers_again(chain: ProfiledChain) -> bool:
    """Whether blocks of segments hold weights from their second run on; there are no nests then."""
    return any(row is not None and row.whole_bytes for row in chain.inside)


def longest_row(chain: ProfiledChain) -> int:
    """Count the blocks of the longest row that may be in one segment."""
    return max(map(len, _rows(chain)), default=0)


def _rows(chain: ProfiledChain) -> Iterator[list[int]]:
    for may, group in groupby(range(len(chain.names)), lambda at: chain.inside[at] is not None):
        if may:
            yield list(group)
