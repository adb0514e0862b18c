"""Figures of each part of a chain, read off the record of a step.

What the parts before retain is one term of a peak, gradients and what the caller holds are others;
the rest is the part's own. So a part's peak plus those terms is what was live, whichever options
the parts before it take.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from haversack.torch.storages import Event, Made


@dataclass(slots=True)
class Figures:
    """One part, in bytes.

    ``retained_bytes`` are made by its forward and alive at its end. The peaks are the highest live
    bytes while it runs, without what earlier parts made, without what outlives the step, but with
    the gradients that its own backward makes, ``gradient_bytes``.
    """

    retained_bytes: int = 0
    forward_peak_bytes: int = 0
    backward_peak_bytes: int = 0
    gradient_bytes: int = 0


def held_bytes(events: Iterable[Event]) -> int:
    """Add up what the forward made and outlives the step: the caller holds it."""
    made = _all_made(events)
    return sum(each.size_bytes for each in made if each.outlives and not each.in_backward)


def figures(events: Sequence[Event], parts: int) -> list[Figures]:
    """Read the figures of all parts off one step."""
    found = [Figures() for _ in range(parts)]
    for made in _all_made(events):
        if made.outlives and made.in_backward:
            found[made.part].gradient_bytes += made.size_bytes
    live = _Live([0] * parts)
    for event in events:
        live.add(event)
        here = found[event.part]
        own = live.own_bytes(event.part)
        if event.in_backward:
            here.backward_peak_bytes = max(here.backward_peak_bytes, own)
        else:
            here.forward_peak_bytes = max(here.forward_peak_bytes, own)
            # The last event of its forward stands.
            here.retained_bytes = live.forward_bytes[event.part]
    _close(events, found)
    return found


@dataclass(slots=True)
class _Live:
    """Live bytes: of the forward of each part, and of backwards, kept gradients apart."""

    forward_bytes: list[int]
    backward_bytes: int = 0
    gradients: list[int] | None = None

    def add(self, event: Event) -> None:
        made = event.made
        if not made.in_backward:
            if not made.outlives:
                self.forward_bytes[made.part] += event.delta_bytes
        elif made.outlives:
            if self.gradients is None:
                self.gradients = [0] * len(self.forward_bytes)
            self.gradients[made.part] += event.delta_bytes
        else:
            self.backward_bytes += event.delta_bytes

    def own_bytes(self, part: int) -> int:
        gradients = self.gradients[part] if self.gradients is not None else 0
        return sum(self.forward_bytes[part:]) + self.backward_bytes + gradients


def _close(events: Sequence[Event], found: Sequence[Figures]) -> None:
    """Take what was alive when each forward ended, not when its own last event was."""
    live = [0] * len(found)
    previous = 0
    for event in (each for each in events if not each.in_backward):
        for ended in range(previous, event.part):
            found[ended].retained_bytes = live[ended]
        previous = event.part
        if not event.made.in_backward and not event.made.outlives:
            live[event.made.part] += event.delta_bytes
    for ended in range(previous, len(found)):
        found[ended].retained_bytes = live[ended]


def _all_made(events: Iterable[Event]) -> list[Made]:
    return list({id(event.made): event.made for event in events}.values())
