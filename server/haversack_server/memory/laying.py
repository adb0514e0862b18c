"""Activations laid onto the stretches of a pass: every moment of it, or the highest of each phase.

A schedule gives stretches, which hold everything but activations. Here what the blocks before a
block retain, and what it adds itself, come on top. Knows no schedule and no steps.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add, attrgetter
from typing import NamedTuple

from haversack_server.memory.chain import Chain, ChainBlock, Option
from haversack_server.memory.moments import Column, Place, Stretch
from haversack_server.memory.schedule.span import Span
from haversack_server.memory.stretches import Groups, Stretches


class TimelineMoment(NamedTuple):
    """One moment; ``bytes_by_column`` follow ``Column``, and sum to ``allocated_bytes``."""

    phase: str
    name: str
    place: Place
    block: int
    bytes_by_column: tuple[int, ...]
    allocated_bytes: int


@dataclass(frozen=True, slots=True)
class Laid:
    """A pass over blocks with its place in the step, and what stands beside it."""

    name: str
    forward: bool
    span: Span
    standing: tuple[int, ...]


class Layer:
    """Adds activations to the stretches of passes, for one choice of options at a time.

    What a block adds is looked up once for each group of equal stretches and blocks; what the
    passes of both steps share is made once.
    """

    def __init__(self, chain: Chain, known: Stretches) -> None:
        self._chain = chain
        self._known = known
        self._sums: dict[tuple[object, ...], _Added] = {}
        self._passes: dict[tuple[bool, Span], _Pass] = {}
        self._tops: dict[tuple[bool, Span], _Top] = {}
        self._numbers: dict[tuple[int, int], tuple[int, ...]] = {}
        self.noted: list[tuple[int, ...]] = []

    def stretches(self, each: Laid) -> tuple[Stretch, ...]:
        """Give the stretches of a pass, which are those of both steps."""
        return self._known.of(each.span, forward=each.forward).stretches

    def lay(self, each: Laid, options: Sequence[Option]) -> Iterator[TimelineMoment]:
        """Give the moments of a pass; ``noted`` takes its highest columns."""
        self._noted(each, options)
        return self._moments(each, options, range(len(self.stretches(each))))

    def highest(self, each: Laid, options: Sequence[Option]) -> Iterator[TimelineMoment]:
        """Give the highest moment of each phase of a pass; ``noted`` takes its highest columns.

        What stands beside a pass is the same at all of its moments, so it decides none of them.
        """
        return self._moments(each, options, self._noted(each, options).indices)

    def _noted(self, each: Laid, options: Sequence[Option]) -> "_Top":
        key = (each.forward, each.span)
        if key not in self._tops:
            self._tops[key] = self._top(each, options)
        self.noted.append(tuple(map(add, self._tops[key].columns, each.standing)))
        return self._tops[key]

    def _moments(
        self, each: Laid, options: Sequence[Option], indices: Iterable[int]
    ) -> Iterator[TimelineMoment]:
        """Make the moments at some stretches of a pass."""
        made, blocks = self._pass(each, options), self._chain.blocks
        # What stands beside the pass, with what a block of each group adds.
        beside = [
            _with(each.standing, added, stretch.gradient_column)
            for added, stretch in zip(made.by_group, made.groups.first, strict=True)
        ]
        sizes = list(map(sum, beside))
        for index in indices:
            stretch, group, before = (
                made.stretches[index],
                made.groups.of[index],
                made.before[index],
            )
            columns = list(map(add, stretch.columns, beside[group]))
            columns[_SAVED] += before
            total = stretch.total_bytes + sizes[group] + before
            phase, name = _words(each, stretch.place, blocks[stretch.block])
            yield TimelineMoment(phase, name, stretch.place, stretch.block, tuple(columns), total)

    def _pass(self, each: Laid, options: Sequence[Option]) -> "_Pass":
        """Give every stretch of a pass with what its block adds, and what is saved before it."""
        key = (each.forward, each.span)
        if key not in self._passes:
            known = self._known.of(each.span, forward=each.forward)
            kinds = self._kinds(options, each.span)
            groups = self._known.groups(each.span, kinds, forward=each.forward)
            by_group = [self._added_at(stretch, options) for stretch in groups.first]
            saved = _saved_before(each, options)
            self._passes[key] = _Pass(
                stretches=known.stretches,
                groups=groups,
                by_group=by_group,
                added=list(map(by_group.__getitem__, groups.of)),
                before=list(map(saved.__getitem__, known.places)),
            )
        return self._passes[key]

    def _top(self, each: Laid, options: Sequence[Option]) -> "_Top":
        """Find the highest stretches of a pass, and the highest of each column over all."""
        made, known = self._pass(each, options), self._known.of(each.span, forward=each.forward)
        heights, columns = self._heights(each, options), list(known.columns)
        for row, stretch, own in zip(
            made.by_group, made.groups.first, made.groups.columns, strict=True
        ):
            _note(columns, own, row, stretch.gradient_column)
        saved = map(add, map(add, made.before, map(_OF_SAVED, made.added)), known.saved)
        columns[_SAVED] = max([columns[_SAVED], *saved])
        # The first of equals, as everywhere.
        tops = tuple(max(phase, key=heights.__getitem__) for phase in known.phases)
        return _Top(tops, tuple(columns))

    def height(self, each: Laid, options: Sequence[Option]) -> int:
        """Give the highest bytes of a pass."""
        return max(self._heights(each, options)) + sum(each.standing)

    def _heights(self, each: Laid, options: Sequence[Option]) -> list[int]:
        """Give all bytes at every stretch of a pass but those that stand beside it."""
        made, known = self._pass(each, options), self._known.of(each.span, forward=each.forward)
        sizes = list(map(sum, made.by_group))
        of_groups = map(sizes.__getitem__, made.groups.of)
        return list(map(add, map(add, made.before, known.totals), of_groups))

    def _added_at(self, stretch: Stretch, options: Sequence[Option]) -> "_Added":
        return _added(stretch, self._chain.blocks[stretch.block], options[stretch.block])

    def _kinds(self, options: Sequence[Option], span: Span) -> tuple[int, ...]:
        """Number the blocks of a span by what they add; equal ones have equal numbers."""
        key = (span.start, span.stop)
        if key not in self._numbers:
            known: dict[tuple[object, ...], int] = {}
            inside = slice(span.start, span.stop)
            ends = map(_ENDS, self._chain.blocks[inside])
            signs = zip(map(id, options[inside]), self._known.weights[inside], ends, strict=True)
            self._numbers[key] = tuple(known.setdefault(sign, len(known)) for sign in signs)
        return self._numbers[key]

    def added(self, stretch: Stretch, block: ChainBlock, option: Option) -> "_Added":
        """What a block adds at a stretch of its own, beside what the blocks before retain."""
        # By identity: an enumeration's own hash is slow, and this runs for every moment.
        what = (id(stretch.place), stretch.gradient_each, id(stretch.part))
        key = (id(option), block.is_head, block.made_elements, *what, *_ENDS(block))
        if key not in self._sums:
            self._sums[key] = _added(stretch, block, option)
        return self._sums[key]


class _Pass(NamedTuple):
    """A pass by stretch: what its block adds there, and what the blocks before retain."""

    stretches: tuple[Stretch, ...]
    groups: Groups
    by_group: Sequence["_Added"]
    added: Sequence["_Added"]
    before: Sequence[int]


class _Top(NamedTuple):
    """The highest stretch of each phase of a pass, and the highest of each column over all."""

    indices: tuple[int, ...]
    columns: tuple[int, ...]


_SAVED, _RUNNING, _LOGITS = map(int, (Column.SAVED, Column.RUNNING, Column.LOGITS))


def _with(standing: Sequence[int], added: "_Added", gradients: int) -> list[int]:
    """Put what a block adds to what stands beside it; ``gradients`` is the column of its own."""
    columns = list(standing)
    columns[_SAVED] += added.saved
    columns[_RUNNING] += added.running
    columns[_LOGITS] += added.logits
    columns[gradients] += added.gradients
    return columns


def _note(columns: list[int], own: tuple[int, ...], added: "_Added", gradients: int) -> None:
    """Raise the highest of the columns to which a block adds; ``gradients`` is one of them."""
    if added.running and own[_RUNNING] + added.running > columns[_RUNNING]:
        columns[_RUNNING] = own[_RUNNING] + added.running
    if added.logits and own[_LOGITS] + added.logits > columns[_LOGITS]:
        columns[_LOGITS] = own[_LOGITS] + added.logits
    if added.gradients and own[gradients] + added.gradients > columns[gradients]:
        columns[gradients] = own[gradients] + added.gradients


# What of a block, beside its option and its weights, says how much it adds.
_ENDS = attrgetter("input_gradient_bytes", "output_gradient_bytes", "passing_input_bytes")


def _saved_before(each: Laid, options: Sequence[Option]) -> list[int]:
    """What the blocks of a pass before each of them retain, and keep until a forward ends."""
    inside = options[each.span.start : each.span.stop]
    retained = map(_RETAINED, inside)
    if each.forward:
        retained = map(add, retained, map(_CACHED, inside))
    return list(accumulate(retained, initial=0))


_RETAINED, _CACHED = attrgetter("retained_bytes"), attrgetter("cached_bytes")


class _Added(NamedTuple):
    """Bytes that a block adds, by column."""

    saved: int = 0
    running: int = 0
    logits: int = 0
    gradients: int = 0


_OF_SAVED = attrgetter("saved")


def _words(each: Laid, place: Place, block: ChainBlock) -> tuple[str, str]:
    if not each.forward:
        return f"{each.name} backward", f"{_VERBS[place]} {block.name}"
    verb = "loss" if block.is_head and place is Place.FORWARD else _VERBS[place]
    return f"{each.name} {'loss' if block.is_head else 'forward'}", f"{verb} {block.name}"


_VERBS = {
    Place.GATHER: "gather",
    Place.FORWARD: "forward",
    Place.GATHER_BACK: "gather",
    Place.BACKWARD: "backward",
    Place.REDUCE: "reduce",
}


def _added(stretch: Stretch, block: ChainBlock, option: Option) -> _Added:
    """Add up one block at one place, with its own gradients as far as they are made."""
    saved, live = _activations(stretch, block, option)
    gradients = 0
    if stretch.place is Place.BACKWARD:
        live, gradients = block.backward_point(option, stretch.gradient_each, stretch.part)
    if block.is_head and stretch.place in (Place.FORWARD, Place.BACKWARD):
        return _Added(logits=live, gradients=gradients)
    return _Added(min(saved, live), max(0, live - saved), 0, gradients)


def _activations(stretch: Stretch, block: ChainBlock, option: Option) -> tuple[int, int]:
    """Give what the block keeps at a moment, and all that it adds, both without gradients."""
    retained = option.retained_bytes
    if stretch.place is Place.FORWARD:
        return retained, option.forward_peak_bytes
    if stretch.place is Place.GATHER_BACK:
        return retained, retained + block.output_gradient_bytes
    if stretch.place is Place.REDUCE:
        return 0, block.input_gradient_bytes
    if stretch.place is Place.GATHER:
        return 0, block.passing_input_bytes
    return retained, option.backward_peak_bytes
