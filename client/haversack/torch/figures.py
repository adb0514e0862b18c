"""Figures of each part of a chain, read off the record of a step.

A part's peak leaves out what earlier parts made, the gradients of later parts and what the caller
holds: these are terms of their own. So their sum is what was live, whichever options the parts
before it take.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from haversack.torch.storages import Event, Made


@dataclass(slots=True)
class Figures:
    """One part, in bytes.

    ``retained_bytes`` are made by its forward and alive at its end. ``gradient_bytes`` are made by
    its backward and outlive the step; ``backward_peak_bytes`` has them in it.
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
    live = _Live(parts)
    ended = 0
    for event in events:
        if not event.in_backward:
            ended = _end(found, live, ended, event.part)
        live.add(event)
        part, own = found[event.part], live.own_bytes(event.part)
        if event.in_backward:
            part.backward_peak_bytes = max(part.backward_peak_bytes, own)
        else:
            part.forward_peak_bytes = max(part.forward_peak_bytes, own)
            part.retained_bytes = live.forward[event.part]
    for part, gradient_bytes in zip(found, live.gradients, strict=True):
        part.gradient_bytes = gradient_bytes
    return found


def _end(found: Sequence[Figures], live: "_Live", ended: int, now: int) -> int:
    """Note what parts retain when the next begins: their outputs count until their backward."""
    for part in range(ended, now):
        found[part].retained_bytes = live.forward[part]
    return max(ended, now)


class _Live:
    """Live bytes by part: made in forward, gradients that stay, and all else of the backward."""

    def __init__(self, parts: int) -> None:
        self.forward = [0] * parts
        self.gradients = [0] * parts
        self.passing = 0

    def add(self, event: Event) -> None:
        """Count an event in; what the caller holds is left out."""
        made = event.made
        if not made.in_backward:
            if not made.outlives:
                self.forward[made.part] += event.delta_bytes
        elif made.outlives:
            self.gradients[made.part] += event.delta_bytes
        else:
            self.passing += event.delta_bytes

    def own_bytes(self, part: int) -> int:
        """Add up what is live, without earlier parts and without gradients of later ones."""
        return sum(self.forward[part:]) + self.gradients[part] + self.passing


def _all_made(events: Iterable[Event]) -> list[Made]:
    return list({id(event.made): event.made for event in events}.values())
