"""FSDP2's schedule of a profile's units: what stands beside the blocks of one rank, place by place.

Units are the profile's blocks, all other parameters the root's. The schedule is the shared
timeline's, laid out with widths of one byte. Knows no states and no budget.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from haversack.parallelism import Parallelism
from haversack.profile import Profile, ProfileBlock
from haversack_server.memory.chain import Chain, ChainBlock, Option
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.moments import Column, Place, Stretch
from haversack_server.memory.recipe import Recipe
from haversack_server.memory.schedule.choose import schedule_of
from haversack_server.memory.schedule.settings import ScheduleSettings
from haversack_server.memory.schedule.span import Span
from haversack_server.memory.states import RankStates
from haversack_server.plan.divided import Divided


def standing_states(gradient_bytes: int = 0) -> RankStates:
    """Give the states that a schedule looks at; all others are counted apart."""
    return RankStates(
        units=(),
        parameter_bytes=0,
        gradient_bytes=gradient_bytes,
        master_bytes=0,
        moment_bytes=0,
        temporary_bytes=0,
    )


@dataclass(frozen=True, slots=True)
class _Pass:
    """The highest of each place of a pass: while a block runs, when it is gathered, when reduced.

    ``prefetched`` is in what runs, and of units before. ``afterwards`` are reductions that come
    when no activation is left, ``ahead`` what is gathered ahead of the model's last part, and not
    while its caller computes something of the output.
    """

    running: dict[int, int]
    gathers: dict[int, int]
    reductions: dict[int, int]
    prefetched: dict[int, int]
    afterwards: int
    ahead: int

    def gathered(self, index: int) -> int:
        """Give by how much the gather is higher than what is there while the block runs."""
        return self.gathers.get(index, 0) - self.running.get(index, 0)


@dataclass(slots=True)
class Edges:
    """What a block needs when it is gathered and when the next one is reduced, beside its bases.

    In backward what the block retains is there too.
    """

    forward_gather: int = 0
    backward_gather: int = 0
    reduction: int = 0


class Laid:
    """The schedule of a profile's units; parts without any take the higher of their neighbours."""

    def __init__(
        self,
        profile: Profile,
        states: Divided,
        degrees: Degrees,
        parallelism: Parallelism,
        recipe: Recipe,
        accumulation: int,
    ) -> None:
        self._count = len(profile.blocks)
        # What an earlier microbatch returned is there until this one has returned.
        self._returned_bytes = profile.held_by_caller_bytes if accumulation > 1 else 0
        self._places = _places(profile.blocks)
        reshards = parallelism.reshard_after_forward is not False
        self._reshard_ranks = parallelism.reshard_ranks or 0
        self._whole_again = tuple(
            states.unit(block.name, block.parameters).whole * recipe.compute
            if reshards and _is_unit(block)
            else 0
            for block in profile.blocks
        )
        depth = parallelism.prefetch_units
        schedule = schedule_of(
            Chain(
                blocks=tuple(_blocks(profile.blocks, self._places, states, recipe)),
                states=standing_states(),
                recipe=recipe,
                degrees=degrees,
                accumulation=accumulation,
                schedule=ScheduleSettings(
                    prefetch_units=depth or 0,
                    reshard_after_forward=reshards,
                    reshard_ranks=self._reshard_ranks,
                ),
            )
        )
        stop = len(self._places)
        span = Span(start=0, stop=stop, gradients_from=0 if accumulation > 1 else stop)
        # A unit that comes last gathers nothing ahead.
        last = -1 if _is_unit(profile.blocks[self._places[-1]]) else stop - 1
        self._forward = _highest(schedule.forward(span), last)
        self._backward = _highest(schedule.backward(span), last)

    def forward(self) -> tuple[int, ...]:
        """Give what is gathered, and gradients that stand, at the forward of each part."""
        return self._spread(self._forward)

    def backward(self) -> tuple[int, ...]:
        """Give what is gathered and reduced, and the gradients of later parts, at its backward."""
        return self._spread(self._backward)

    def edged(
        self, options: Sequence[tuple[Option, ...]], profile: Profile
    ) -> tuple[tuple[Option, ...], ...]:
        """Raise the peaks of options to what gathers and reductions of their block need.

        At a gather there is what the block begins with, at a reduction what it ends with; the
        reduction comes when the part before has begun. What the model's last part has beside it is
        there while the model itself runs.
        """
        found, base = list(options), self.backward()
        for place, edges in enumerate(self.edges(profile)):
            back = max(edges.backward_gather, edges.reduction)
            found[place] = tuple(
                _raised(each, forward=edges.forward_gather, backward=back + each.retained_bytes)
                for each in found[place]
            )
        last_reductions = self._backward.afterwards - base[0]
        found[0] = tuple(_raised(each, backward=last_reductions) for each in found[0])
        found[-1] = tuple(self._of_last(each, profile) for each in found[-1])
        return tuple(found)

    def edges(self, profile: Profile) -> list[Edges]:
        """Give what gathers and reductions need, place by place."""
        found, base = [Edges() for _ in profile.blocks], self.backward()
        leaving = [*(block.leaving_bytes for block in profile.blocks), 0]
        for index, place in enumerate(self._places):
            block = profile.blocks[place]
            found[place].forward_gather = self._forward.gathered(index) + block.arriving_bytes
            found[place].backward_gather = self._backward.gathered(index) + leaving[place + 1]
            if place:
                found[place - 1].reduction = self._over(index, block) - base[place - 1]
        return found

    def whole_again(self) -> list[tuple[int, int]]:
        """Give the weights of each unit that is gathered once more, and what it keeps of them."""
        ranks = self._reshard_ranks
        return [(whole, whole // ranks if ranks else 0) for whole in self._whole_again]

    def prefetched(self) -> list[int]:
        """Give what is gathered ahead, of units before, while the backward of each part runs."""
        found = [0] * self._count
        for index, place in enumerate(self._places):
            found[place] = self._backward.prefetched.get(index, 0)
        return found

    def _over(self, index: int, block: ProfileBlock) -> int:
        """Give what is there when a block's backward is over: still gathered, or being reduced."""
        gathered = self._backward.running.get(index, 0) + block.gradient_bytes
        reduced = self._backward.reductions.get(index, 0)
        return max(gathered, reduced) + block.leaving_bytes

    def _of_last(self, option: Option, profile: Profile) -> Option:
        forward, backward = profile.model_forward_peak_bytes, profile.model_backward_peak_bytes
        return _raised(
            option,
            forward=self._forward.ahead
            + (option.forward_peak_bytes if forward is None else forward + self._returned_bytes),
            backward=self._backward.ahead
            + (option.backward_peak_bytes if backward is None else backward),
        )

    def _spread(self, found: _Pass) -> tuple[int, ...]:
        spread = []
        for place in range(self._count):
            after = bisect_left(self._places, place)
            before = bisect_right(self._places, place) - 1
            spread.append(max(found.running.get(index, 0) for index in (before, after)))
        return tuple(spread)


def _raised(option: Option, *, forward: int = 0, backward: int = 0) -> Option:
    return replace(
        option,
        forward_peak_bytes=max(option.forward_peak_bytes, forward),
        backward_peak_bytes=max(option.backward_peak_bytes, backward),
    )


def _highest(stretches: Iterable[Stretch], last: int) -> _Pass:
    """Read a pass; after the backward of the first block there are no activations.

    ``last`` is the index of the model's last part if that is of the root.
    """
    running, gathers, reductions = dict[int, int](), dict[int, int](), dict[int, int]()
    of = {Place.GATHER: gathers, Place.GATHER_BACK: gathers, Place.REDUCE: reductions}
    prefetched, afterwards, ahead, is_over = dict[int, int](), 0, 0, False
    for each in stretches:
        if is_over and each.place is Place.REDUCE:
            afterwards = max(afterwards, each.total_bytes)
            continue
        column, size_bytes = of.get(each.place, running), each.total_bytes
        if each.block == last:
            ahead = max(ahead, each.columns[Column.PREFETCHED])
            size_bytes -= each.columns[Column.PREFETCHED]
        if column is running and size_bytes > running.get(each.block, 0):
            prefetched[each.block] = each.columns[Column.PREFETCHED]
        column[each.block] = max(column.get(each.block, 0), size_bytes)
        is_over |= each.place is Place.BACKWARD and each.block == 0
    return _Pass(running, gathers, reductions, prefetched, afterwards, ahead)


def _is_unit(block: ProfileBlock) -> bool:
    return not block.name.startswith("(") and bool(block.parameters)


def _places(blocks: Sequence[ProfileBlock]) -> list[int]:
    """Choose the parts that the schedule sees: units, and the root's where it has parameters.

    The first unit comes first where no gradient goes on from it: it is reduced last then.
    """
    has_root = any(block.parameters for block in blocks if block.name.startswith("("))
    places = [place for place, block in enumerate(blocks) if _is_unit(block) or has_root]
    if has_root and not blocks[0].gradient_bytes:
        return places[1:]
    return places


def _blocks(
    blocks: Sequence[ProfileBlock], places: Sequence[int], states: Divided, recipe: Recipe
) -> Iterable[ChainBlock]:
    """Make the blocks of a chain without options; the last of the root's parts bears its sizes."""
    root = [each for block in blocks if not _is_unit(block) for each in block.parameters]
    last = max((place for place in places if not _is_unit(blocks[place])), default=-1)
    for place in places:
        block = blocks[place]
        of_root = root if place == last else ()
        unit = states.unit(block.name, block.parameters if _is_unit(block) else of_root)
        made = block.gradient_bytes // recipe.compute
        yield ChainBlock(
            name=block.name,
            unit=unit,
            options=(),
            root=not _is_unit(block),
            tied_elements=max(0, made - unit.elements),
            again_elements=max(0, unit.elements - made),
        )
