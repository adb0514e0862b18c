"""Regions of a tape that run again in backward, and what autograd keeps in their place.

A *region* is a run of operations inside one checkpoint. A checkpoint keeps the region's arguments
and its result where a later operation saves it. Some frameworks drop that result too, and make it
again before its first use in backward (Megatron-LM, megatron/core/tensor_parallel/random.py,
CheckpointWithoutOutput). Knows names of operations and storages, no bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haversack_server.memory.tape import Operation

Operations = Sequence["Operation"]
# The scopes of a layer's parts; a scope inside another has its name in front.
CORE = "attention core"
NORM = "norm"
FEED_FORWARD = "feed-forward"
LATENT_UP = "latent expansion"
EXPERTS = "experts"
EXPERT_ACTIVATION = "experts/activation"


@dataclass(frozen=True, slots=True)
class Region:
    """Operations ``start:stop`` of a tape, without those that an early stop spares.

    ``names`` are those that run again; ``drops_result``: nothing that they write is kept.
    ``alive``: storages that operations beyond an early stop would read, alive when it comes.
    """

    start: int
    names: frozenset[str]
    drops_result: bool = False
    alive: frozenset[str] = frozenset()


def whole(operations: Operations) -> tuple[Region, ...]:
    """Give the region of all operations; it stops once all that was saved is there again."""
    last = max((index for index, op in enumerate(operations) if op.saves), default=-1)
    names = frozenset(op.name for op in operations[: last + 1])
    alive = frozenset(name for op in operations[last + 1 :] for name in op.holds)
    return (Region(0, names, alive=alive),) if last >= 0 else ()


def scoped(operations: Operations, scope: str, *, drops_result: bool = False) -> tuple[Region, ...]:
    """Give one region for each run of operations in a scope, or in a scope inside it."""
    regions = []
    for run in _runs(operations, scope):
        names = frozenset(operations[index].name for index in run)
        regions.append(Region(run[0], names, drops_result))
    return tuple(regions)


def _runs(operations: Operations, scope: str) -> Iterator[list[int]]:
    """Group neighbours in a scope; what only holds storages alive parts no neighbours."""
    run: list[int] = []
    for index, op in enumerate(operations):
        if op.scope == scope or op.scope.startswith(f"{scope}/"):
            run.append(index)
        elif op.writes and run:
            yield run
            run = []
    if run:
        yield run


def kept(operations: Operations, regions: Iterable[Region]) -> frozenset[str]:
    """Return the storages that autograd keeps from forward to backward.

    Of a region it keeps what the region takes from outside, instead of what its operations save.
    """
    again = {name: region for region in regions for name in region.names}
    made: dict[str, Region] = {}
    for op in operations:
        if op.name in again:
            made.update(dict.fromkeys(op.writes, again[op.name]))
    result: set[str] = set()
    for op in operations:
        if op.name not in again:
            result.update(op.saves)
        else:
            region = again[op.name]
            result.update(name for name in op.holds if made.get(name) is not region)
    dropped = {name for name, region in made.items() if region.drops_result}
    return frozenset(result - dropped)


def rebuilt_at(operations: Operations, regions: Sequence[Region]) -> dict[int, list[Region]]:
    """Say before the backward of which operation each region runs again.

    That is the last of its own, or the last that needs a result which was dropped; where that one
    is in another region, the last of that. Regions at one place are in the order of the tape.
    """
    places: dict[int, list[Region]] = {}
    last: dict[Region, int] = {}
    for region in sorted(regions, key=lambda each: each.start, reverse=True):
        made = {name for op in operations if op.name in region.names for name in op.writes}
        needs = [index for index, op in enumerate(operations) if op.name in region.names]
        if region.drops_result:
            needs += [index for index, op in enumerate(operations) if made & set(op.saves)]
            needs += [last[other] for other in last if _takes(operations, other, made)]
        last[region] = max(needs)
        places.setdefault(last[region], []).insert(0, region)
    return places


def _takes(operations: Operations, region: Region, made: set[str]) -> bool:
    return any(made & set(op.holds) for op in operations if op.name in region.names)
