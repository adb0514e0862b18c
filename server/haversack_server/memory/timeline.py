"""The timeline: bytes by term at every moment of two steps, on one rank.

Moments are the quantizing of weights where that is known, init, then for steps 1 and 2 the forward
of each block, the loss, the backward of each block, the reduction of its gradients, and the
optimizer step; gathers are moments of their own.
Optimizer moments appear in step 1's optimizer step, so step 2 is higher. Gradients are freed at the
end of a step (set_to_none).

A schedule says what a rank holds beside states and activations; this module adds both. What block
j's option needs beside what the blocks before j retain does not depend on other choices: Plan takes
these needs as ceilings, so the plan's peak is this timeline's peak.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from haversack_server.memory.chain import Chain
from haversack_server.memory.laying import Layer, TimelineMoment
from haversack_server.memory.moments import Column, Place
from haversack_server.memory.occasions import occasions, quantizing
from haversack_server.memory.passes import gradients_from, held_by_caller, laid, passes, standing
from haversack_server.memory.pipeline import open_passes
from haversack_server.memory.schedule.choose import Schedule
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
    "highest_bytes",
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
    known, gradients = stretches_of(chain), gradients_from(chain)
    schedule = known.schedule
    moments = [*_loading(chain), _init(chain, schedule)]
    layer = Layer(chain, known)
    for step in (1, 2):
        for each in passes(chain, schedule, retained, gradients, step):
            moments += layer.lay(each, options) if whole else layer.highest(each, options)
        moments.append(_optimizer_step(chain, schedule, step))
    moments += _occasions(chain, schedule)
    alone = (moment.bytes_by_column for moment in moments if moment.block < 0)
    columns = [*alone, *layer.noted]
    return Timeline(tuple(moments), tuple(map(max, *columns)))


def highest_bytes(chain: Chain, choice: Sequence[int]) -> int:
    """Give the bytes of a timeline's peak, and no moment, in half the time.

    They are those of step 2: whatever step 1 holds, it holds too, and the optimizer's moments.
    """
    options = [block.options[index] for block, index in zip(chain.blocks, choice, strict=True)]
    retained = [option.retained_bytes for option in options]
    known, gradients = stretches_of(chain), gradients_from(chain)
    layer, schedule = Layer(chain, known), known.schedule
    every = passes(chain, schedule, retained, gradients, 2)
    return max(_fixed(chain, schedule), *(layer.height(each, options) for each in every))


def bases(chain: Chain) -> Bases:
    """Find what every option needs at the moments of its block."""
    known = stretches_of(chain)
    schedule = known.schedule
    fixed = _fixed(chain, schedule)
    needs = {
        forward: [[0] * len(block.options) for block in chain.blocks] for forward in (True, False)
    }
    layer = Layer(chain, known)
    nothing = [0] * len(chain.blocks)
    for each in passes(chain, schedule, nothing, gradients_from(chain), 2):
        beside = sum(each.standing)
        for stretch in layer.stretches(each):
            block, column = chain.blocks[stretch.block], needs[each.forward][stretch.block]
            base = stretch.total_bytes + beside
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
    gradients = gradients_from(chain)
    for others, made in open_passes(chain.pipeline, gradients, chain.accumulation, step=2):
        each = laid(chain, schedule, made, 2)
        beside, needs = sum(each.standing), dict[int, list[int]]()
        for stretch in layer.stretches(each):
            block, base = chain.blocks[stretch.block], stretch.total_bytes + beside
            column = needs.setdefault(stretch.block, [0] * len(block.options))
            for index, option in enumerate(block.options):
                column[index] = max(column[index], base + sum(layer.added(stretch, block, option)))
        rows = tuple(tuple(needs[place]) for place in range(made.start, made.stop))
        found.append(PassBases(start=made.start, others=others, needs=rows))
    return tuple(found), _fixed(chain, schedule)


def _fixed(chain: Chain, schedule: Schedule) -> int:
    """The highest moment that no choice of options moves."""
    alone = [_init(chain, schedule), *_loading(chain), _optimizer_step(chain, schedule, 2)]
    alone += _occasions(chain, schedule)
    return max(moment.allocated_bytes for moment in alone)


def _init(chain: Chain, schedule: Schedule) -> TimelineMoment:
    return _moment("init", "init", Place.INIT, -1, standing(chain, schedule, 0))


def _loading(chain: Chain) -> list[TimelineMoment]:
    return [
        _moment(phase, name, Place.INIT, -1, columns) for phase, name, columns in quantizing(chain)
    ]


def _optimizer_step(chain: Chain, schedule: Schedule, step: int) -> TimelineMoment:
    columns = standing(chain, schedule, step)
    columns[Column.GRADIENTS] = chain.states.gradient_bytes
    columns[Column.MOMENTS] = chain.states.moment_bytes
    columns[Column.TEMPORARIES] = chain.states.temporary_bytes
    columns[Column.WORKSPACES] = chain.workspace_bytes
    columns[Column.WEIGHT_COPIES] = chain.weight_copies_bytes
    columns[Column.HELD] = held_by_caller(chain)
    columns[Column.GRAPH] = chain.named_graph_bytes
    columns[Column.STAGE] = chain.pipeline.between_steps_bytes(chain.accumulation)
    return _moment(f"step {step} optimizer", "optimizer step", Place.OPTIMIZER, -1, columns)


def _occasions(chain: Chain, schedule: Schedule) -> list[TimelineMoment]:
    return [
        _moment(phase, name, Place.OCCASION, -1, columns)
        for phase, name, columns in occasions(chain, schedule, standing(chain, schedule, 2))
    ]


def _moment(
    phase: str, name: str, place: Place, block: int, columns: Sequence[int]
) -> TimelineMoment:
    return TimelineMoment(phase, name, place, block, tuple(columns), sum(columns))
