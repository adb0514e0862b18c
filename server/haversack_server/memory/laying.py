"""Activations laid onto the stretches of a pass: every moment of it, or the highest of each phase.

A schedule gives stretches, which hold everything but activations. Here what the blocks before a
block retain, and what it adds itself, come on top. Knows no schedule and no steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from typing import NamedTuple

from haversack_server.memory.chain import Chain, ChainBlock, Option
from haversack_server.memory.moments import Column, Place, Stretch
from haversack_server.memory.schedule.span import Span
from haversack_server.memory.stretches import Stretches


@dataclass(frozen=True, slots=True)
class TimelineMoment:
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
    """Adds activations to the stretches of passes; equal stretches and blocks are added up once."""

    def __init__(self, chain: Chain, known: Stretches) -> None:
        self._chain = chain
        self._known = known
        self._sums: dict[tuple[object, ...], _Added] = {}
        self._tops: dict[tuple[bool, Span], _Top] = {}
        self._numbers: dict[Span, list[int]] = {}
        self.noted: list[tuple[int, ...]] = []

    def stretches(self, each: Laid) -> tuple[Stretch, ...]:
        """Give the stretches of a pass, which are those of both steps."""
        return self._known.of(each.span, forward=each.forward).stretches

    def lay(self, each: Laid, options: Sequence[Option]) -> Iterator[TimelineMoment]:
        """Give the moments of a pass."""
        saved = _saved_before(each, options)
        for stretch in self.stretches(each):
            yield self._moment(each, stretch, options, saved[stretch.block - each.span.start])

    def highest(self, each: Laid, options: Sequence[Option]) -> Iterator[TimelineMoment]:
        """Give the highest moment of each phase of a pass; ``noted`` takes its highest columns.

        What stands beside a pass is the same at all of its moments, so it decides none of them.
        """
        saved = _saved_before(each, options)
        key = (each.forward, each.span)
        if key not in self._tops:
            self._tops[key] = self._top(each, options, saved)
        top = self._tops[key]
        self.noted.append(tuple(map(add, top.columns, each.standing)))
        for stretch in top.stretches:
            yield self._moment(each, stretch, options, saved[stretch.block - each.span.start])

    def _moment(
        self, each: Laid, stretch: Stretch, options: Sequence[Option], saved: int
    ) -> TimelineMoment:
        block = self._chain.blocks[stretch.block]
        added = self.added(stretch, block, options[stretch.block])
        columns = list(map(add, stretch.columns, each.standing))
        columns[Column.SAVED] += added.saved + saved
        columns[Column.RUNNING] += added.running
        columns[Column.LOGITS] += added.logits
        columns[stretch.gradient_column] += added.gradients
        phase, name = _words(each, stretch.place, block)
        total = sum(columns)
        return TimelineMoment(phase, name, stretch.place, stretch.block, tuple(columns), total)

    def _top(self, each: Laid, options: Sequence[Option], saved: Sequence[int]) -> "_Top":
        """Find the highest stretches of a pass, and the highest of each column over all."""
        highest: dict[bool, tuple[int, Stretch]] = {}
        sums: dict[tuple[int, int], tuple[_Added, int]] = {}
        known, start = self._known.of(each.span, forward=each.forward), each.span.start
        columns, kinds = list(known.columns), self._kinds(options, each.span)
        most_saved = columns[_SAVED]
        for stretch, total, kind in zip(known.stretches, known.totals, known.kinds, strict=True):
            index = stretch.block
            key = kinds[index - start], kind
            if key not in sums:
                added = self.added(stretch, self._chain.blocks[index], options[index])
                sums[key] = added, sum(added)
            added, size_bytes = sums[key]
            before, own = saved[index - start], stretch.columns
            most_saved = max(most_saved, own[_SAVED] + added.saved + before)
            if size_bytes != added.saved:
                _note(columns, own, added, stretch.gradient_column)
            height = total + before + size_bytes
            is_loss = each.forward and self._chain.blocks[index].is_head
            if is_loss not in highest or height > highest[is_loss][0]:
                highest[is_loss] = height, stretch
        columns[_SAVED] = most_saved
        return _Top(tuple(stretch for _, stretch in highest.values()), tuple(columns))

    def _kinds(self, options: Sequence[Option], span: Span) -> list[int]:
        """Number the blocks of a span by what they add; equal ones have equal numbers."""
        if span not in self._numbers:
            known: dict[tuple[object, ...], int] = {}
            inside = slice(span.start, span.stop)
            pairs = zip(self._chain.blocks[inside], options[inside], strict=True)
            signs = ((id(option), block.is_head, *_ends(block)) for block, option in pairs)
            self._numbers[span] = [known.setdefault(sign, len(known)) for sign in signs]
        return self._numbers[span]

    def added(self, stretch: Stretch, block: ChainBlock, option: Option) -> "_Added":
        """What a block adds at a stretch of its own, beside what the blocks before retain."""
        # By identity: an enumeration's own hash is slow, and this runs for every moment.
        what = (id(stretch.place), stretch.gradient_each, id(stretch.part))
        key = (id(option), block.is_head, *what, *_ends(block))
        if key not in self._sums:
            self._sums[key] = _added(stretch, block, option)
        return self._sums[key]


class _Top(NamedTuple):
    """The highest stretch of each phase of a pass, and the highest of each column over all."""

    stretches: tuple[Stretch, ...]
    columns: tuple[int, ...]


_SAVED, _RUNNING, _LOGITS = map(int, (Column.SAVED, Column.RUNNING, Column.LOGITS))


def _note(columns: list[int], own: tuple[int, ...], added: "_Added", gradients: int) -> None:
    """Raise the highest of the columns to which a block adds; ``gradients`` is one of them."""
    if added.running and own[_RUNNING] + added.running > columns[_RUNNING]:
        columns[_RUNNING] = own[_RUNNING] + added.running
    if added.logits and own[_LOGITS] + added.logits > columns[_LOGITS]:
        columns[_LOGITS] = own[_LOGITS] + added.logits
    if added.gradients and own[gradients] + added.gradients > columns[gradients]:
        columns[gradients] = own[gradients] + added.gradients


def _ends(block: ChainBlock) -> tuple[int, ...]:
    """What of a block, beside its option, says how much it adds."""
    return (
        block.input_gradient_bytes,
        block.output_gradient_bytes,
        block.passing_input_bytes,
        block.made_elements,
    )


def _saved_before(each: Laid, options: Sequence[Option]) -> list[int]:
    """What the blocks of a pass before each of them retain, and keep until a forward ends."""
    inside = options[each.span.start : each.span.stop]
    retained = (option.retained_bytes for option in inside)
    if each.forward:
        retained = (option.retained_bytes + option.cached_bytes for option in inside)
    return list(accumulate(retained, initial=0))


class _Added(NamedTuple):
    """Bytes that a block adds, by column."""

    saved: int = 0
    running: int = 0
    logits: int = 0
    gradients: int = 0


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
