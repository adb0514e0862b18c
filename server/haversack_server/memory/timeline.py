"""The timeline: bytes by term at every moment of two steps, on one rank.

Moments are init, then for steps 1 and 2 the forward of each block, the loss, the backward of each
block, the reduction of its gradients, and the optimizer step; gathers are moments of their own.
Optimizer moments appear in step 1's optimizer step, so step 2 is higher. Gradients are freed at the
end of a step (set_to_none).

A schedule says what a rank holds beside states and activations; this module adds both. What block
j's option needs beside what the blocks before j retain does not depend on other choices: Plan takes
these needs as ceilings, so the plan's peak is this timeline's peak.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from haversack_server.memory.chain import Chain
from haversack_server.memory.laying import Laid, Layer, TimelineMoment
from haversack_server.memory.moments import Column, Place
from haversack_server.memory.occasions import occasions
from haversack_server.memory.optimizers.kinds import KINDS
from haversack_server.memory.pipeline import Pass, open_passes, passes
from haversack_server.memory.schedule.choose import Schedule
from haversack_server.memory.schedule.span import Span
from haversack_server.memory.stretches import stretches_of

__all__ = [
    "Bases",
    "Column",
    "PassBases",
    "Place",
    "Timeline",
    "TimelineMoment",
    "bases",
    "bases_in_flight",
    "timeline",
]


@dataclass(frozen=True)
class Timeline:
    """Moments of one rank, in order: every one, or the highest of each phase.

    ``largest`` are the highest bytes of each column over all moments, those left out included.
    """

    moments: tuple[TimelineMoment, ...]
    largest: tuple[int, ...]

    @cached_property
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
    """What each option of each block needs beside what the blocks before it retain.

    Forward and backward apart, the highest of all moments; ``fixed`` is the highest moment that no
    choice of options moves. Shape ``(blocks, options of the block)`` each.
    """

    forward: tuple[tuple[int, ...], ...]
    backward: tuple[tuple[int, ...], ...]
    fixed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassBases:
    """What options need in one pass of the blocks from ``start`` on, by block and option.

    ``others``: microbatches in flight beside it, by chunk; what these retain is not in it.
    """

    start: int
    others: tuple[int, ...]
    needs: tuple[tuple[int, ...], ...]


def timeline(chain: Chain, choice: Sequence[int], *, whole: bool = True) -> Timeline:
    """Lay the chosen option of each block onto the moments of two steps.

    If not ``whole``, only the highest moment of each phase is made, in a fraction of the time.
    """
    options = [block.options[index] for block, index in zip(chain.blocks, choice, strict=True)]
    retained = [option.retained_bytes for option in options]
    known = stretches_of(chain)
    schedule = known.schedule
    init = _standing(chain, schedule, 0)
    moments = [_moment("init", "init", Place.INIT, -1, init)]
    layer = Layer(chain, known)
    for step in (1, 2):
        for each in _passes(chain, schedule, retained, step):
            moments += layer.lay(each, options) if whole else layer.highest(each, options)
        moments.append(_optimizer_step(chain, schedule, step))
    moments += _occasions(chain, schedule)
    columns = [*(moment.bytes_by_column for moment in moments), *layer.noted]
    return Timeline(tuple(moments), tuple(map(max, *columns)))


def bases(chain: Chain) -> Bases:
    """Find what every option needs at the moments of its block."""
    known = stretches_of(chain)
    schedule = known.schedule
    fixed = _fixed(chain, schedule)
    needs = {
        forward: [[0] * len(block.options) for block in chain.blocks] for forward in (True, False)
    }
    layer = Layer(chain, known)
    for each in _passes(chain, schedule, [0] * len(chain.blocks), 2):
        standing = sum(each.standing)
        for stretch in layer.stretches(each):
            block, column = chain.blocks[stretch.block], needs[each.forward][stretch.block]
            base = stretch.total_bytes + standing
            for index, option in enumerate(block.options):
                need = base + sum(layer.added(stretch, block, option))
                column[index] = max(column[index], need)
    forward, backward = (tuple(map(tuple, needs[side])) for side in (True, False))
    return Bases(forward=forward, backward=backward, fixed=fixed)


def bases_in_flight(chain: Chain) -> tuple[tuple[PassBases, ...], int]:
    """Find what options need at the moments of every pass, and the highest moment without blocks.

    What is retained comes on top: by the blocks before, and by each microbatch in flight.
    """
    known = stretches_of(chain)
    schedule, layer, found = known.schedule, Layer(chain, known), []
    gradients = _gradients_from(chain)
    for others, made in open_passes(chain.pipeline, gradients, chain.accumulation, step=2):
        each = _laid(chain, schedule, made, 2)
        standing, needs = sum(each.standing), dict[int, list[int]]()
        for stretch in layer.stretches(each):
            block, base = chain.blocks[stretch.block], stretch.total_bytes + standing
            column = needs.setdefault(stretch.block, [0] * len(block.options))
            for index, option in enumerate(block.options):
                column[index] = max(column[index], base + sum(layer.added(stretch, block, option)))
        rows = tuple(tuple(needs[place]) for place in range(made.start, made.stop))
        found.append(PassBases(start=made.start, others=others, needs=rows))
    return tuple(found), _fixed(chain, schedule)


def _fixed(chain: Chain, schedule: Schedule) -> int:
    """The highest moment that no choice of options moves."""
    alone = [_optimizer_step(chain, schedule, 2), *_occasions(chain, schedule)]
    init = sum(_standing(chain, schedule, 0))
    return max(init, *(moment.allocated_bytes for moment in alone))


def _passes(chain: Chain, schedule: Schedule, retained: Sequence[int], step: int) -> Iterator[Laid]:
    """The highest forward and backward of each kind: of a first microbatch, which finds no
    gradients, and of a later one, for each chunk of layers.

    ``retained`` bytes of other microbatches are in flight beside them.
    """
    gradients = _gradients_from(chain)
    for made in passes(chain.pipeline, retained, gradients, chain.accumulation, step=step):
        yield _laid(chain, schedule, made, step)


def _laid(chain: Chain, schedule: Schedule, made: Pass, step: int) -> Laid:
    """Put a pass between what stands beside it."""
    columns = _standing(chain, schedule, step)
    # An optimizer in the backward makes its temporaries there.
    in_backward = chain.schedule.updates_in_backward and not made.forward
    columns[Column.TEMPORARIES] = chain.states.temporary_bytes if in_backward else 0
    columns[Column.WORKSPACES] = chain.workspace_bytes
    columns[Column.WEIGHT_COPIES] = chain.weight_copies_bytes
    columns[Column.ON_THE_WAY] = chain.on_the_way_bytes
    columns[Column.BATCH] = chain.batch_bytes
    columns[Column.IN_FLIGHT] = made.in_flight_bytes
    columns[Column.STAGE] = made.stage_bytes
    columns[Column.GATHERED] += _gathered_elsewhere(chain, made)
    columns[Column.HELD] = _held_by_caller(chain) if _is_held(chain, made) else 0
    columns[Column.GRAPH] = _graph_before(chain, made, step)
    name = f"step {step} {made.name}".rstrip()
    return Laid(name, made.forward, _span(chain, made), tuple(columns))


def _is_held(chain: Chain, made: Pass) -> bool:
    """Whether the caller has an output: in backward, and in the forward of a later microbatch.

    There the variable names the output of the microbatch before until the new one is assigned.
    """
    later = made.gradients_from <= made.start and chain.pipeline.stages == 1
    return not made.forward or later


def _graph_before(chain: Chain, made: Pass, step: int) -> int:
    """What the graph of the microbatch before keeps, in the forward that takes its name away.

    That of a backward's own microbatch is among what the blocks retain.
    """
    is_first = step == 1 and made.gradients_from > made.start
    return 0 if is_first or not made.forward else chain.named_graph_bytes


def _gathered_elsewhere(chain: Chain, made: Pass) -> int:
    """Units of a stage's other chunks, where a unit stays gathered after its forward.

    Some microbatch of every chunk is in flight for most of a step (torch.distributed.pipelining
    reshards in the last microbatch's backward only).
    """
    if chain.schedule.reshard_after_forward or not chain.degrees.shards_parameters:
        return 0
    others = (*chain.blocks[: made.start], *chain.blocks[made.stop :])
    return sum(block.unit.whole for block in others) * chain.recipe.compute


def _span(chain: Chain, made: Pass) -> Span:
    """Say which gradients are there; without syncs only the last microbatch reduces."""
    unsynced = chain.schedule.no_sync and chain.accumulation > 1
    first = made.gradients_from > made.start
    return Span(
        start=made.start,
        stop=made.stop,
        gradients_from=made.gradients_from,
        reduces=not (unsynced and first),
        unreduced=unsynced and not first,
    )


def _gradients_from(chain: Chain) -> list[int]:
    """Bytes of the gradients of each block and of those after it; the last entry is 0."""
    sharded = chain.degrees.shards_gradients
    each = chain.recipe.gradient if chain.keeps_gradients else 0
    elements = [
        block.unit.trained_shard if sharded else block.made_elements for block in chain.blocks
    ]
    return [size * each for size in reversed(list(accumulate(reversed(elements), initial=0)))]


def _standing(chain: Chain, schedule: Schedule, step: int) -> list[int]:
    """What is there through a step; step 0 is before the first."""
    columns = [0] * len(Column)
    columns[Column.PARAMETERS] = chain.states.parameter_bytes
    columns[Column.MASTER] = chain.states.master_bytes
    columns[Column.MOMENTS] = _moments(chain, step)
    for column, size_bytes in schedule.standing(step).items():
        columns[column] += size_bytes
    return columns


def _moments(chain: Chain, step: int) -> int:
    """Most optimizers make their moments in the first step."""
    from_start = KINDS[chain.recipe.optimizer].from_start
    return chain.states.moment_bytes if step > 1 or from_start else 0


def _optimizer_step(chain: Chain, schedule: Schedule, step: int) -> TimelineMoment:
    columns = _standing(chain, schedule, step)
    columns[Column.GRADIENTS] = chain.states.gradient_bytes
    columns[Column.MOMENTS] = chain.states.moment_bytes
    columns[Column.TEMPORARIES] = chain.states.temporary_bytes
    columns[Column.WORKSPACES] = chain.workspace_bytes
    columns[Column.WEIGHT_COPIES] = chain.weight_copies_bytes
    columns[Column.HELD] = _held_by_caller(chain)
    columns[Column.GRAPH] = chain.named_graph_bytes
    columns[Column.STAGE] = chain.pipeline.between_steps_bytes(chain.accumulation)
    return _moment(f"step {step} optimizer", "optimizer step", Place.OPTIMIZER, -1, columns)


def _occasions(chain: Chain, schedule: Schedule) -> list[TimelineMoment]:
    return [
        _moment(phase, name, Place.OCCASION, -1, columns)
        for phase, name, columns in occasions(chain, schedule, _standing(chain, schedule, 2))
    ]


def _held_by_caller(chain: Chain) -> int:
    return sum(block.held_by_caller_bytes for block in chain.blocks)


def _moment(
    phase: str, name: str, place: Place, block: int, columns: Sequence[int]
) -> TimelineMoment:
    return TimelineMoment(phase, name, place, block, tuple(columns), sum(columns))
