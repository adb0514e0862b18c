"""Tensors that skip over blocks: who makes them, and who keeps them under which options.

Read off the step in which all blocks are saved. A tensor on its maker's account is there for as
long as a block keeps it: under every option, or only where the block runs again and so keeps what
it was given. Where nobody does, it is freed as the forward goes on. What any other step shows to
live longer is left with its maker. Knows no plan.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from haversack.profile import Profile, SkipKeeper, SkipTensor
from haversack.torch.occurrences import Occurrence
from haversack.torch.owners import Owners, Place
from haversack.torch.policy import parsed
from haversack.torch.storages import Event, Made

_Key = tuple[int, int, tuple[Place, ...]]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a profile: the option of each block that took one, by part."""

    options: Mapping[int, str]
    events: Sequence[Event]
    owners: Owners


@dataclass(frozen=True, slots=True)
class StandIns:
    """Blocks that did not run in the steps, by part, with the part whose figures they have.

    ``passing`` are the arguments that blocks which did run do not keep.
    """

    stands_for: Mapping[int, int]
    passing: Collection[Place]

    def keeps(self, taker: Place) -> bool:
        """Whether a block that did not run may keep what it was given there."""
        part, place = taker
        return part in self.stands_for and (self.stands_for[part], place) not in self.passing


@dataclass(frozen=True, slots=True)
class Skip:
    """A tensor and its readers, by part: there in forward until ``read_until``, and while kept.

    ``kept_from`` is the first part that keeps it under every option, ``made_by`` the operation of
    its maker, which a policy may save.
    """

    size_bytes: int
    maker: int
    made_by: Occurrence | None
    takers: tuple[int, ...]
    read_until: int
    kept_from: int | None

    def is_kept(self, part: int, option: str) -> bool:
        """Whether a block keeps it by an option; one that runs again keeps what it was given."""
        if part == self.maker:
            policy = parsed(option)
            return policy is not None and self.made_by in policy.saved
        return option != "save"

    @property
    def choosing(self) -> list[int]:
        """Parts before ``kept_from`` that may keep it by one option and not by another."""
        parts = sorted({self.maker, *self.takers})
        return [each for each in parts if self.kept_from is None or each < self.kept_from]

    def first_keeper(self, options: Mapping[int, str]) -> int | None:
        """Name the first part that keeps it, which is where the backward frees it."""
        kept = (each for each in self.choosing if self.is_kept(each, options.get(each, "save")))
        return next(kept, self.kept_from)


def skips_of(steps: Sequence[Step], stand_ins: StandIns) -> list[Skip]:
    """Find them in the first step, which saves all blocks, and hold them against the others."""
    found: dict[_Key, list[Skip]] = {}
    for event in _freed(steps[0].events):
        skip = _skip(event, steps[0].owners, stand_ins)
        if skip is not None:
            found.setdefault(_key(event.made), []).append(skip)
    for step in steps:
        _hold_against(step, found)
    return [each for skips in found.values() for each in skips]


def _freed(events: Iterable[Event]) -> Iterator[Event]:
    """Give the ends of what the forward made and freed."""
    for event in events:
        made = event.made
        is_end = event.delta_bytes == -made.size_bytes < 0
        if is_end and not (made.in_backward or made.outlives):
            yield event


def _key(made: Made) -> _Key:
    return made.part, made.size_bytes, tuple(made.takers)


def _skip(event: Event, owners: Owners, stand_ins: StandIns) -> Skip | None:
    made = event.made
    # A stand-in keeps nothing of what it makes, though the block itself may.
    if owners.of(made) != made.part or made.part in stand_ins.stands_for:
        return None
    kept = [part for part, place in made.takers if stand_ins.keeps((part, place))]
    kept += [event.part] if event.in_backward else []
    kept_from = min(kept, default=None)
    if kept_from is not None and kept_from <= made.part:
        return None
    return Skip(
        size_bytes=made.size_bytes,
        maker=made.part,
        made_by=made.maker,
        takers=tuple(sorted({part for part, _ in made.takers})),
        read_until=max([event.part, *(part for part, _ in made.takers)]),
        kept_from=kept_from,
    )


def _hold_against(step: Step, found: dict[_Key, list[Skip]]) -> None:
    """Leave out what is not on its maker's account in a step, or is there for longer than said."""
    ends: dict[_Key, list[Event]] = {}
    for event in _freed(step.events):
        key = _key(event.made)
        if key in found:
            ends.setdefault(key, []).append(event)
    for key, skips in list(found.items()):
        seen = ends.get(key, [])
        is_so = len(seen) == len(skips) and all(
            step.owners.of(event.made) == skip.maker and _ends_by(event, skip, step.options)
            for event in seen
            for skip in skips
        )
        if not is_so:
            del found[key]


def _ends_by(event: Event, skip: Skip, options: Mapping[int, str]) -> bool:
    if not event.in_backward:
        return skip.first_keeper(options) is not None or event.part <= skip.read_until
    first = skip.first_keeper(options)
    return first is not None and event.part >= first


def with_skips(profile: Profile, skips: Iterable[Skip], order: Sequence[str]) -> Profile:
    """Write them into a profile; ``order`` names its blocks as they ran."""
    places = {block.name: place for place, block in enumerate(profile.blocks)}
    names = [f"(before {order[0]})"]
    for name in order:
        names += [name, f"(after {name})"]
    # A part that costs nothing is not in the profile: what is next to it is.
    listed = [part for part, name in enumerate(names) if name in places]
    sizes: dict[SkipTensor, int] = {}
    for skip in skips:
        written = _written(skip, profile, listed)
        if written is not None:
            sizes[written] = sizes.get(written, 0) + skip.size_bytes
    made = tuple(replace(each, size_bytes=size) for each, size in sizes.items())
    return replace(profile, skip_tensors=made)


def _written(skip: Skip, profile: Profile, listed: Sequence[int]) -> SkipTensor | None:
    """Name parts by their place in the profile; None where no block could do without it."""
    last = len(listed) - 1
    maker, read_until, kept_from = listed.index(skip.maker), last, None
    if skip.kept_from is not None:
        # Who keeps it is given it before, so it is there all through the forward.
        kept_from = sum(part < skip.kept_from for part in listed)
        if kept_from <= maker + 1:
            return None
    else:
        read_until = sum(part <= skip.read_until for part in listed) - 1
    keepers = []
    for part in skip.choosing:
        options = profile.tables[profile.blocks[listed.index(part)].table].option
        keeping = tuple(each for each in options if skip.is_kept(part, each))
        if keeping:
            keepers.append(SkipKeeper(block=listed.index(part), option=keeping))
    return SkipTensor(
        size_bytes=0,
        maker=maker,
        read_until=read_until,
        kept_from=kept_from,
        keepers=tuple(keepers),
    )
