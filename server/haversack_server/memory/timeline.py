"""The timeline: bytes by term at every moment of two steps, on one rank.

Moments are init, then for steps 1 and 2 the forward of each block, the loss, the backward of each
block, the reduction of its gradients, and the optimizer step. Optimizer moments appear in step 1's
optimizer step, so step 2 is higher. Gradients are freed at the end of a step (set_to_none).

At block j's forward or backward a rank holds: all other bytes at that moment (its *base*), what the
blocks before j retain, and the peak of the option that j runs. Plan takes the same bases as
ceilings, so the plan's peak is this timeline's peak.
"""

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from haversack.parallelism import Sharding
from haversack_server.memory.chain import Chain, ChainBlock, Option


class Column(enum.IntEnum):
    """The terms of the timeline; the ledger puts each into words."""

    PARAMETERS = 0
    GRADIENTS = 1
    MASTER = 2
    MOMENTS = 3
    SAVED = 4
    RUNNING = 5
    LOGITS = 6
    HELD = 7
    GATHERED = 8
    PREFETCHED = 9
    UNSHARDED_GRADIENTS = 10
    REDUCE = 11
    TEMPORARIES = 12


class Place(enum.Enum):
    """What happens at a moment."""

    INIT = "init"
    FORWARD = "forward"
    BACKWARD = "backward"
    REDUCE = "reduce"
    OPTIMIZER = "optimizer"


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
class Timeline:
    """Every moment of one rank, in order."""

    moments: tuple[TimelineMoment, ...]

    @property
    def peak(self) -> TimelineMoment:
        """The highest moment; the first of equals."""
        return max(self.moments, key=lambda moment: moment.allocated_bytes)

    def by_phase(self) -> dict[str, TimelineMoment]:
        """The highest moment of each phase, in order of the phases."""
        highest: dict[str, TimelineMoment] = {}
        for moment in self.moments:
            known = highest.get(moment.phase)
            if known is None or moment.allocated_bytes > known.allocated_bytes:
                highest[moment.phase] = moment
        return highest


@dataclass(frozen=True, slots=True)
class Bases:
    """All bytes but activations, at each block's forward, backward and reduction: the highest.

    ``fixed`` is the highest moment that no choice of options moves. Shape ``(blocks,)`` each.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    reduce: tuple[int, ...]
    fixed: int


def timeline(chain: Chain, choice: Sequence[int]) -> Timeline:
    """Lay the chosen option of each block onto the moments of two steps."""
    options = [block.options[index] for block, index in zip(chain.blocks, choice, strict=True)]
    before = _retained_before(options)
    moments = []
    for base in _base_moments(chain):
        if base.place in (Place.INIT, Place.OPTIMIZER):
            moments.append(base)
            continue
        saved = before[base.block]
        moments.append(_with_block(base, chain.blocks[base.block], options[base.block], saved))
    return Timeline(tuple(moments))


def bases(chain: Chain) -> Bases:
    """Read off the timeline what each block's moments hold beside activations."""
    count = len(chain.blocks)
    highest = {place: [0] * count for place in (Place.FORWARD, Place.BACKWARD, Place.REDUCE)}
    fixed = 0
    for moment in _base_moments(chain):
        if moment.place in (Place.INIT, Place.OPTIMIZER):
            fixed = max(fixed, moment.allocated_bytes)
            continue
        column = highest[moment.place]
        column[moment.block] = max(column[moment.block], moment.allocated_bytes)
    return Bases(
        forward=tuple(highest[Place.FORWARD]),
        backward=tuple(highest[Place.BACKWARD]),
        reduce=tuple(highest[Place.REDUCE]),
        fixed=fixed,
    )


def _retained_before(options: Sequence[Option]) -> list[int]:
    before = [0]
    for option in options:
        before.append(before[-1] + option.retained_bytes)
    return before


def _with_block(
    base: TimelineMoment, block: ChainBlock, option: Option, saved: int
) -> TimelineMoment:
    """Add what the blocks before retain, and what the running block adds itself."""
    columns = list(base.bytes_by_column)
    columns[Column.SAVED] += saved
    if base.place is not Place.REDUCE:
        forward = base.place is Place.FORWARD
        peak = option.forward_peak_bytes if forward else option.backward_peak_bytes
        if block.is_head:
            columns[Column.LOGITS] += peak
        else:
            columns[Column.SAVED] += option.retained_bytes
            columns[Column.RUNNING] += peak - option.retained_bytes
    return _moment(base.phase, base.name, base.place, base.block, columns)


def _base_moments(chain: Chain) -> Iterator[TimelineMoment]:
    """Every moment without activations: states, gathered units, gradients, what callers hold."""
    states = chain.states
    init = [0] * len(Column)
    init[Column.PARAMETERS] = states.parameter_bytes
    init[Column.MASTER] = states.master_bytes
    init[Column.REDUCE] = _standing_buckets(chain)
    yield _moment("init", "init", Place.INIT, -1, init)
    for step in (1, 2):
        steady = list(init)
        steady[Column.MOMENTS] = states.moment_bytes if step > 1 else 0
        yield from _microbatches(chain, step, steady)
        steady[Column.GRADIENTS] = states.gradient_bytes
        steady[Column.MOMENTS] = states.moment_bytes
        steady[Column.TEMPORARIES] = states.temporary_bytes
        steady[Column.HELD] = _held_by_caller(chain)
        name = f"step {step} optimizer"
        yield _moment(name, "optimizer step", Place.OPTIMIZER, -1, steady)


def _microbatches(chain: Chain, step: int, steady: Sequence[int]) -> Iterator[TimelineMoment]:
    """The first microbatch, which finds no gradients, and one that stands for all later ones."""
    if chain.accumulation == 1:
        yield from _microbatch(chain, f"step {step}", steady, accumulated=False)
        return
    yield from _microbatch(chain, f"step {step} first microbatch", steady, accumulated=False)
    yield from _microbatch(chain, f"step {step} later microbatch", steady, accumulated=True)


def _microbatch(
    chain: Chain, name: str, steady: Sequence[int], *, accumulated: bool
) -> Iterator[TimelineMoment]:
    start = list(steady)
    if accumulated:
        start[Column.GRADIENTS] = chain.states.gradient_bytes
    yield from _forward(chain, name, start)
    yield from _backward(chain, name, start, accumulated=accumulated)


def _forward(chain: Chain, name: str, start: Sequence[int]) -> Iterator[TimelineMoment]:
    gathers = _Gathers(chain)
    for index, block in enumerate(chain.blocks):
        columns = list(start)
        columns[Column.GATHERED] = gathers.gathered(index)
        columns[Column.PREFETCHED] = gathers.ahead(index, step=1)
        phase = "loss" if block.is_head else "forward"
        moment_name = f"loss {block.name}" if block.is_head else f"forward {block.name}"
        yield _moment(f"{name} {phase}", moment_name, Place.FORWARD, index, columns)


def _backward(
    chain: Chain, name: str, start: Sequence[int], *, accumulated: bool
) -> Iterator[TimelineMoment]:
    gathers = _Gathers(chain)
    held, bucket = _held_by_caller(chain), _bucket(chain)
    gradients = _gradients_so_far(chain)
    phase = f"{name} backward"
    for index in reversed(range(len(chain.blocks))):
        block = chain.blocks[index]
        columns = list(start)
        columns[Column.HELD] = held
        columns[Column.GATHERED] = gathers.gathered(index)
        columns[Column.PREFETCHED] = gathers.ahead(index, step=-1)
        columns[Column.UNSHARDED_GRADIENTS] = gathers.unsharded_gradients(index)
        columns[Column.REDUCE] += gathers.reducing(index + 1) + bucket
        if not accumulated:
            columns[Column.GRADIENTS] = gradients[index]
        yield _moment(phase, f"backward {block.name}", Place.BACKWARD, index, columns)
        if chain.degrees.shards_parameters and not block.root:
            columns = list(columns)
            columns[Column.REDUCE] = start[Column.REDUCE] + gathers.reducing(index)
            yield _moment(phase, f"reduce {block.name}", Place.REDUCE, index, columns)


class _Gathers:
    """What FSDP2 and ZeRO 3 gather for the unit that runs, and for those ahead of it.

    FSDP2's memory tracker shows in backward one unsharded unit, one more gathered, one input of a
    reduction and one unit of unsharded gradients (measured, torch 2.13.0 on the CPU).
    """

    def __init__(self, chain: Chain) -> None:
        self._gathers = chain.degrees.shards_parameters
        self._recipe = chain.recipe
        self._wholes = [0 if block.root else block.unit.whole for block in chain.blocks]
        self._root = sum(block.unit.whole for block in chain.blocks if block.root)
        self._depth = chain.prefetch_units

    def gathered(self, index: int) -> int:
        """The running unit, and a root unit that is never freed within a microbatch."""
        return self._scaled(self._wholes[index] + self._root, self._recipe.compute)

    def ahead(self, index: int, *, step: int) -> int:
        """The units gathered before their turn, in the direction of ``step``."""
        places = range(index + step, index + step * (self._depth + 1), step)
        inside = [place for place in places if 0 <= place < len(self._wholes)]
        return self._scaled(sum(self._wholes[place] for place in inside), self._recipe.compute)

    def unsharded_gradients(self, index: int) -> int:
        """Gradients of the running unit before they are reduced; a root unit's stay to the end."""
        return self._scaled(self._wholes[index] + self._root, self._recipe.compute)

    def reducing(self, index: int) -> int:
        """The input of the reduction of the unit whose backward came before."""
        whole = self._wholes[index] if index < len(self._wholes) else 0
        return self._scaled(whole, self._recipe.reduce)

    def _scaled(self, elements: int, each_bytes: int) -> int:
        return elements * each_bytes if self._gathers else 0


def _gradients_so_far(chain: Chain) -> list[int]:
    """Kept gradients at each block's backward: those of the blocks after it, and its own if whole.

    Shape ``(blocks,)``.
    """
    sharded = chain.degrees.shards_gradients
    sizes = [block.unit.shard if sharded else block.unit.whole for block in chain.blocks]
    from_here = list(accumulate(reversed(sizes)))[::-1]
    done = [*from_here[1:], 0] if sharded else from_here
    each, most = chain.recipe.gradient, chain.states.gradient_bytes
    return [min(elements * each, most) for elements in done]


def _held_by_caller(chain: Chain) -> int:
    return sum(block.held_by_caller_bytes for block in chain.blocks)


def _bucket(chain: Chain) -> int:
    """The bucket that ZeRO 1 and 2 fill and reduce during backward (DeepSpeed's, one of them)."""
    if chain.degrees.sharding not in (Sharding.ZERO_1, Sharding.ZERO_2):
        return 0
    if chain.degrees.dp_shard == 1:
        return 0
    whole = sum(block.unit.whole for block in chain.blocks)
    return min(chain.reduce_bucket_elements, whole) * chain.recipe.gradient


def _standing_buckets(chain: Chain) -> int:
    """DistributedDataParallel's buckets: a second copy of the gradients, kept from the start."""
    replicated = chain.degrees.sharding is Sharding.REPLICATED and chain.degrees.dp_replicate > 1
    return chain.states.gradient_bytes if replicated else 0


def _moment(
    phase: str, name: str, place: Place, block: int, columns: Sequence[int]
) -> TimelineMoment:
    return TimelineMoment(phase, name, place, block, tuple(columns), sum(columns))
