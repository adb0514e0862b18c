"""What a schedule lays out, kept: it follows from units and settings, not from tokens or options.

Runs that differ in microbatch, sequence, attention or recomputation share it: the variations of a
request, the steps of a search, and requests for the same model. Knows no activations.
"""

from functools import lru_cache
from typing import NamedTuple

from haversack_server.memory.chain import Chain
from haversack_server.memory.moments import Column, Stretch
from haversack_server.memory.schedule.choose import schedule_of
from haversack_server.memory.schedule.span import Span

MOST_KEPT = 64  # schedules; each has the stretches of a handful of passes
_NOTHING = (0,) * len(Column)


class PassStretches(NamedTuple):
    """The stretches of a pass with the total of each, and the highest of each column over all.

    ``kinds`` are equal for stretches at which equal blocks add the same; ``places`` are those of
    their blocks in the pass, ``saved`` the bytes of that column, and ``phases`` the stretches of
    each phase of the pass: the loss of a forward is one.
    """

    stretches: tuple[Stretch, ...]
    totals: tuple[int, ...]
    kinds: tuple[int, ...]
    places: tuple[int, ...]
    saved: tuple[int, ...]
    phases: tuple[tuple[int, ...], ...]
    columns: tuple[int, ...]


class Groups(NamedTuple):
    """The stretches of a pass by what their blocks add: one group for each kind of both.

    ``of`` has the group of each stretch, ``first`` its first stretch, and ``columns`` the highest
    bytes of each column over its stretches.
    """

    of: tuple[int, ...]
    first: tuple[Stretch, ...]
    columns: tuple[tuple[int, ...], ...]


class Stretches:
    """The stretches of a schedule, laid out when they are first asked for."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.schedule = schedule_of(chain)
        # What of a block, beside its option and its sizes, says how much it adds at its stretches.
        self.weights = tuple((block.is_head, block.made_elements) for block in chain.blocks)
        self._known: dict[tuple[bool, Span], PassStretches] = {}
        self._groups: dict[tuple[bool, Span], tuple[tuple[int, ...], Groups]] = {}

    def of(self, span: Span, *, forward: bool) -> PassStretches:
        """Give those of a pass."""
        key = (forward, span)
        if key not in self._known:
            run = self.schedule.forward if forward else self.schedule.backward
            made = tuple(run(span))
            self._known[key] = PassStretches(
                stretches=made,
                totals=tuple(stretch.total_bytes for stretch in made),
                kinds=_kinds(made),
                places=tuple(stretch.block - span.start for stretch in made),
                saved=tuple(stretch.columns[Column.SAVED] for stretch in made),
                phases=self._phases(made, forward=forward),
                columns=tuple(map(max, *(stretch.columns for stretch in made), _NOTHING)),
            )
        return self._known[key]

    def _phases(self, made: tuple[Stretch, ...], *, forward: bool) -> tuple[tuple[int, ...], ...]:
        """Divide the stretches of a pass by phase, in the order in which phases begin."""
        phases: dict[bool, list[int]] = {}
        for index, stretch in enumerate(made):
            is_loss = forward and self.chain.blocks[stretch.block].is_head
            phases.setdefault(is_loss, []).append(index)
        return tuple(map(tuple, phases.values()))

    def groups(self, span: Span, kinds: tuple[int, ...], *, forward: bool) -> Groups:
        """Give the groups of a pass whose blocks are of these kinds.

        Those of the last kinds are kept: runs that differ in sizes have the same.
        """
        last = self._groups.get((forward, span))
        if last is None or last[0] != kinds:
            last = kinds, _grouped(self.of(span, forward=forward), kinds)
            self._groups[forward, span] = last
        return last[1]


def _grouped(known: PassStretches, kinds: tuple[int, ...]) -> Groups:
    numbers: dict[tuple[int, int], int] = {}
    signs = zip(map(kinds.__getitem__, known.places), known.kinds, strict=True)
    of = tuple(numbers.setdefault(sign, len(numbers)) for sign in signs)
    members: list[list[Stretch]] = [[] for _ in numbers]
    for group, stretch in zip(of, known.stretches, strict=True):
        members[group].append(stretch)
    columns = (tuple(map(max, *(each.columns for each in group), _NOTHING)) for group in members)
    return Groups(of, tuple(group[0] for group in members), tuple(columns))


def _kinds(made: tuple[Stretch, ...]) -> tuple[int, ...]:
    known: dict[tuple[object, ...], int] = {}
    signs = ((each.place, each.gradient_each, each.gradient_column, each.part) for each in made)
    return tuple(known.setdefault(sign, len(known)) for sign in signs)


def stretches_of(chain: Chain) -> Stretches:
    """Give the stretches of a chain, shared with all chains of equal units and settings."""
    return _kept(_Skeleton(chain))


class _Skeleton:
    """A chain as its schedule sees it; two are equal if their schedules are."""

    __slots__ = ("_hash", "_key", "chain")

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        units = tuple(
            (
                *(block.unit.whole, block.unit.shard, block.unit.unpadded, block.unit.parameters),
                block.unit.frozen_shard,
                *(block.is_head, block.root, block.joins_unit_before),
                *(block.tied_elements, block.again_elements),
            )
            for block in chain.blocks
        )
        settings = (
            *(chain.recipe, chain.degrees, chain.schedule),
            *(chain.gradients_stand, chain.offload),
        )
        self._key = (units, settings, chain.states.gradient_bytes, chain.accumulation)
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Skeleton) and self._key == other._key


@lru_cache(maxsize=MOST_KEPT)
def _kept(skeleton: _Skeleton) -> Stretches:
    return Stretches(skeleton.chain)
