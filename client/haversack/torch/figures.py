"""Figures of each part of a chain, read off the record of a step.

A part's peak leaves out what earlier parts retain, the gradients of later parts and what the caller
holds: these are terms of their own. So their sum is what was live, whichever options the parts
before it take.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from haversack.torch.owners import Owners
from haversack.torch.storages import Event, Made


@dataclass(slots=True)
class Figures:
    """One part, in bytes.

    ``retained_bytes`` are alive from its forward to its backward on its account. ``passing_bytes``
    are made before its forward, are there meanwhile and are retained by no earlier part;
    ``forward_peak_bytes`` leaves them out. ``gradient_bytes`` are made by its backward and outlive
    the step; ``backward_peak_bytes`` has them in it. ``leaving_bytes`` are there when its backward
    ends, beside these: gradients of what it was given. Peaks with ``model`` in their name are those
    while the model itself runs: what is computed of its output is the caller's. ``waiting_bytes``
    are there when it begins to run again: what it retains, and gradients.
    """

    retained_bytes: int = 0
    forward_peak_bytes: int = 0
    passing_bytes: int = 0
    backward_peak_bytes: int = 0
    gradient_bytes: int = 0
    leaving_bytes: int = 0
    waiting_bytes: int = 0
    model_forward_peak_bytes: int = 0
    model_backward_peak_bytes: int = 0


def held_by_part(events: Iterable[Event], parts: int) -> list[int]:
    """Add up what the forward of each part made and outlives the step: the caller holds it."""
    found = [0] * parts
    for made in _all_made(events):
        if made.outlives and not made.in_backward:
            found[made.part] += made.size_bytes
    return found


def figures(
    events: Sequence[Event], parts: int, owners: Owners, reruns: Mapping[int, int]
) -> list[Figures]:
    """Read the figures of all parts off one step; ``reruns`` say before which event each began."""
    found = [Figures() for _ in range(parts)]
    live, begins = _Live(parts, owners), {place: part for part, place in reruns.items()}
    for place, event in enumerate(events):
        if place in begins:
            live.enter(begins[place])
            found[begins[place]].waiting_bytes = live.own_bytes()
        live.add(event)
        live.enter(event.part)
        part = found[event.part]
        if event.in_backward:
            own = live.own_bytes()
            part.backward_peak_bytes = max(part.backward_peak_bytes, own)
            part.leaving_bytes = own - live.gradients[event.part]
            if event.in_model:
                # What is freed first was there when the gradient came.
                own += max(0, -event.delta_bytes)
                part.model_backward_peak_bytes = max(part.model_backward_peak_bytes, own)
        elif event.delta_bytes > 0:
            passing = live.passing_bytes()
            part.passing_bytes = max(part.passing_bytes, passing)
            own = live.own_bytes() - passing
            part.forward_peak_bytes = max(part.forward_peak_bytes, own)
            if event.in_model:
                part.model_forward_peak_bytes = part.forward_peak_bytes
    for made in _all_made(events):
        for owner in (owners.of(made), owners.also(made)):
            if owner is not None and not (made.in_backward or made.outlives):
                found[owner].retained_bytes += made.size_bytes
    for part, gradient_bytes in zip(found, live.gradients, strict=True):
        part.gradient_bytes = gradient_bytes
    return found


class _Live:
    """Live bytes: of the forward by maker and owner, gradients that stay, and all else."""

    def __init__(self, parts: int, owners: Owners) -> None:
        self.gradients = [0] * parts
        self._owners = owners
        self._forward: dict[tuple[int, int], int] = {}
        self._passing = 0
        self._part = 0

    def add(self, event: Event) -> None:
        """Count an event in; what the caller holds is left out."""
        made = event.made
        if not made.in_backward:
            if not made.outlives:
                owner = self._owners.of(made)
                # What passes by is as if the last part of all retained it.
                key = made.part, len(self.gradients) if owner is None else owner
                self._forward[key] = self._forward.get(key, 0) + event.delta_bytes
        elif made.outlives:
            self.gradients[made.part] += event.delta_bytes
        else:
            self._passing += event.delta_bytes

    def enter(self, part: int) -> None:
        self._part = part

    def own_bytes(self) -> int:
        """Add up what is live, without what earlier parts retain and gradients of later ones."""
        own = sum(size for (_, owner), size in self._forward.items() if owner >= self._part)
        return own + self.gradients[self._part] + self._passing

    def passing_bytes(self) -> int:
        """Add up what was made before this part and is not retained by a part before it."""
        return sum(
            size for (maker, owner), size in self._forward.items() if maker < self._part <= owner
        )


def _all_made(events: Iterable[Event]) -> list[Made]:
    return list({id(event.made): event.made for event in events}.values())
