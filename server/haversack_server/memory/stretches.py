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

    ``kinds`` are equal for stretches at which equal blocks add the same.
    """

    stretches: tuple[Stretch, ...]
    totals: tuple[int, ...]
    kinds: tuple[int, ...]
    columns: tuple[int, ...]


class Stretches:
    """The stretches of a schedule, laid out when they are first asked for."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.schedule = schedule_of(chain)
        self._known: dict[tuple[bool, Span], PassStretches] = {}

    def of(self, span: Span, *, forward: bool) -> PassStretches:
        """Give those of a pass."""
        key = (forward, span)
        if key not in self._known:
            run = self.schedule.forward if forward else self.schedule.backward
            made = tuple(run(span))
            columns = tuple(map(max, *(stretch.columns for stretch in made), _NOTHING))
            totals = tuple(stretch.total_bytes for stretch in made)
            self._known[key] = PassStretches(made, totals, _kinds(made), columns)
        return self._known[key]


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
