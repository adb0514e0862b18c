"""Every plan of a short chain with segments, and segments in them, walked through by hand.

What the planner's answers are compared with: it adds up every moment of every way to cut a chain.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, product
from typing import Any

from hypothesis import strategies as st
from tests.unit.plan.test_profiled import block, cost, every_choice

from haversack.plan import Plan
from haversack.profile import OptionTable, Profile
from haversack_server.plan.nested import Nest

SIZES = st.integers(0, 40)
Cut = tuple[Nest, ...]
"""A chain in pieces: a block by itself, or the nest of a segment."""


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Up to 5 blocks of two kinds, most of which may be in a segment."""
    tables = []
    for _ in range(2):
        saved, again = 40 + draw(SIZES), draw(SIZES)
        tables.append(
            OptionTable(
                option=("save", "recompute"),
                retained_bytes=(saved, again),
                forward_peak_bytes=(saved + draw(SIZES), again + draw(SIZES)),
                backward_peak_bytes=(saved + draw(SIZES), saved + draw(SIZES)),
                extra_ns=(0, 1 + draw(SIZES)),
            )
        )
    blocks = []
    for place in range(draw(st.integers(1, 5))):
        made = block(f"layers.{place}", draw(st.integers(0, 1)))
        inside: dict[str, Any] = {}
        if draw(st.integers(0, 4)):
            names = ("segment_bytes", "segment_peak_bytes", "forward_ns")
            inside = {name: draw(SIZES) for name in names}
        blocks.append(replace(made, **inside))
    return Profile(blocks=tuple(blocks), tables=tuple(tables), held_by_caller_bytes=draw(SIZES))


def nests(first: int, stop: int) -> Iterator[Nest]:
    """Give every way in which a segment can run again; its last block is saved."""
    if stop - first == 1:
        yield (first,)
        return
    for rest in nests(first + 1, stop):
        yield (first, *rest)
    for cut in range(first + 1, stop):
        for inner, rest in product(nests(first, cut), nests(cut, stop)):
            yield (inner, *rest)


def cuts(count: int) -> Iterator[Cut]:
    """Give every way to cut a chain: one block at a time, or a segment with its nest."""
    if count == 0:
        yield ()
    for last in range(count):
        for before, piece in product(cuts(last), nests(last, count)):
            yield (*before, piece)


def flat(nest: Nest) -> list[int]:
    return [place for each in nest for place in ([each] if isinstance(each, int) else flat(each))]


def plans(profile: Profile) -> Iterator[tuple[int, int]]:
    """Walk through every plan moment by moment; give its peak and its extra time."""
    for cut in cuts(len(profile.blocks)):
        members = [place for piece in cut if len(flat(piece)) > 1 for place in flat(piece)]
        if any(profile.blocks[place].segment_bytes is None for place in members):
            continue
        for chosen in every_choice(profile):
            if all(chosen[place] == 1 for place in members):
                yield walked(profile, cut, chosen), time_of(profile, cut, chosen)


def time_of(profile: Profile, cut: Cut, chosen: tuple[int, ...]) -> int:
    long = [piece for piece in cut if len(flat(piece)) > 1]
    members = {place for piece in long for place in flat(piece)}
    single = tuple(0 if place in members else row for place, row in enumerate(chosen))
    return cost(profile, single) + sum(again_ns(profile, piece) for piece in long)


def again_ns(profile: Profile, segment: Nest) -> int:
    """Add up all runs of a segment's blocks after their first."""

    def run(places: Sequence[int]) -> int:
        rows = [profile.blocks[place] for place in places]
        last = profile.tables[rows[-1].table].extra_ns[1]
        return last + sum(each.forward_ns or 0 for each in rows[:-1])

    def inner(nest: Nest) -> int:
        within = [each for each in nest if not isinstance(each, int)]
        return sum(run(flat(each)) + inner(each) for each in within)

    return run(flat(segment)) + inner(segment)


class Walk:
    """Goes through a step by hand; ``moments`` are live bytes."""

    def __init__(self, profile: Profile) -> None:
        self.blocks = profile.blocks
        self.rows = [profile.tables[each.table] for each in profile.blocks]
        standing = sum(each.parameter_bytes for each in profile.blocks)
        self.standing = standing + profile.held_by_caller_bytes
        made = [*accumulate((each.gradient_bytes for each in reversed(self.blocks)), initial=0)]
        self.later = list(reversed(made))[1:]  # gradients there when a block's backward begins
        self.moments = [self.standing + made[-1]]

    def single(self, place: int, row: int, kept: int) -> int:
        own, later = self.rows[place], self.later[place]
        self.moments.append(self.standing + kept + own.forward_peak_bytes[row])
        self.moments.append(self.standing + later + kept + own.backward_peak_bytes[row])
        return kept + own.retained_bytes[row]

    def plainly(self, places: Sequence[int], live: int) -> int:
        """Run blocks of which nothing is saved; give what they leave."""
        left = 0
        for place in places:
            first = self.rows[place].forward_peak_bytes[1]
            peak = first if place == places[0] else self.blocks[place].segment_peak_bytes or 0
            self.moments.append(live + left + peak)
            last = place == places[-1]
            left += (
                self.rows[place].retained_bytes[1]
                if last
                else self.blocks[place].segment_bytes or 0
            )
        return left

    def again(self, nest: Nest, kept: int) -> None:
        """Run a segment's blocks again, then back through them."""
        end, tape = flat(nest)[-1], []
        row = self.rows[end]
        by_end = row.retained_bytes[0] - row.retained_bytes[1]
        waiting = max(0, row.backward_peak_bytes[1] - by_end)
        live = self.standing + self.later[end]
        for each in nest:
            tape.append((each, kept))
            if isinstance(each, int):
                more = waiting + self.rows[each].forward_peak_bytes[0]
                more = row.backward_peak_bytes[1] if each == end else more
                self.moments.append(live + kept + more)
                kept += self.rows[each].retained_bytes[0]
            else:
                kept += self.plainly(flat(each), live + kept + waiting)
        for each, before in reversed(tape):
            if isinstance(each, int):
                back = before + self.rows[each].backward_peak_bytes[0]
                self.moments.append(self.standing + self.later[each] + back)
            else:
                self.again(each, before)

    def segment(self, nest: Nest, kept: int) -> int:
        places = flat(nest)
        left = sum(self.blocks[place].segment_bytes or 0 for place in places[:-1])
        self.again(nest, kept + left)
        return kept + self.plainly(places, self.standing + kept)


def walked(profile: Profile, cut: Cut, chosen: tuple[int, ...]) -> int:
    walk, kept = Walk(profile), 0
    for nest in cut:
        places = flat(nest)
        if len(places) == 1:
            kept = walk.single(places[0], chosen[places[0]], kept)
        else:
            kept = walk.segment(nest, kept)
    return max(walk.moments)


def plans_at_length(profile: Profile) -> Iterator[tuple[int, int]]:
    """Give what ``plans`` gives, each piece walked once: it lies on top of what is kept before."""
    count = len(profile.blocks)
    pieces = [list(piece_walks(profile, first)) for first in range(count)]

    def go_on(place: int, kept: int, peak: int, extra: int) -> Iterator[tuple[int, int]]:
        if place == count:
            yield peak, extra
            return
        for stop, more, height, time_ns in pieces[place]:
            yield from go_on(stop, kept + more, max(peak, kept + height), extra + time_ns)

    return go_on(0, 0, Walk(profile).moments[0], 0)


def piece_walks(profile: Profile, first: int) -> Iterator[tuple[int, int, int, int]]:
    """Walk all pieces from a block on; give each one's end, what it keeps, its peak and time."""
    table = profile.tables[profile.blocks[first].table]
    for row, extra_ns in enumerate(table.extra_ns):
        walk = Walk(profile)
        yield first + 1, walk.single(first, row, 0), max(walk.moments[1:]), extra_ns
    for stop in range(first + 2, len(profile.blocks) + 1):
        if any(each.segment_bytes is None for each in profile.blocks[first:stop]):
            return
        for nest in nests(first, stop):
            walk = Walk(profile)
            kept = walk.segment(nest, 0)
            yield stop, kept, max(walk.moments[1:]), again_ns(profile, nest)


def cut_of(answer: Plan) -> Cut:
    places: list[Nest] = []
    numbered = enumerate(answer.actions)
    for number, group in groupby(numbered, key=lambda each: each[1].segment):
        actions = list(group)
        if number:
            places.append(nest_of([(place, each.inner_segments) for place, each in actions]))
        else:
            places += [(place,) for place, _ in actions]
    return tuple(places)


def nest_of(paths: Sequence[tuple[int, tuple[int, ...]]]) -> Nest:
    found: list[int | Nest] = []
    for number, group in groupby(paths, key=lambda each: (each[1] or (0,))[0]):
        members = list(group)
        inner = [(place, path[1:]) for place, path in members]
        found += [nest_of(inner)] if number else [place for place, _ in members]
    return tuple(found)
