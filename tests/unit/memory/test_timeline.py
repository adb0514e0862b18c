"""The timeline by hand: three blocks of round sizes on one rank and on four."""

import pytest

from haversack.parallelism import Parallelism, Sharding
from haversack.run import Training
from haversack_server.memory.chain import Chain, ChainBlock, Option
from haversack_server.memory.degrees import resolve
from haversack_server.memory.recipe import recipe
from haversack_server.memory.schedule.settings import ScheduleSettings
from haversack_server.memory.states import UnitStates, rank_states
from haversack_server.memory.timeline import Column, Place, Timeline, bases, timeline

SAVE = Option(name="save", retained_bytes=100, forward_peak_bytes=120, backward_peak_bytes=150)
RECOMPUTE = Option(
    name="recompute",
    retained_bytes=10,
    forward_peak_bytes=90,
    backward_peak_bytes=150,
    extra_ns=7,
)
HEAD = Option(name="save", retained_bytes=5, forward_peak_bytes=60, backward_peak_bytes=80)
COUNTS = (8, 16, 4)  # parameters of each block


def chain(
    ranks: int = 1,
    sharding: Sharding = Sharding.ZERO_3,
    *,
    idealised: bool = False,
    **settings: int,
) -> Chain:
    degrees = resolve(Parallelism(world_size=ranks, sharding=sharding))
    numbers, _ = recipe(Training(), sharding)
    units = [
        UnitStates(name=name, whole=count, shard=-(-count // degrees.dp_shard))
        for name, count in zip("abc", COUNTS, strict=True)
    ]
    options = ((SAVE, RECOMPUTE), (SAVE, RECOMPUTE), (HEAD,))
    blocks = tuple(
        ChainBlock(
            name=unit.name,
            unit=unit,
            options=rows,
            is_head=unit.name == "c",
            held_by_caller_bytes=20 if unit.name == "c" else 0,
        )
        for unit, rows in zip(units, options, strict=True)
    )
    return Chain(
        blocks=blocks,
        states=rank_states(units, numbers, degrees),
        recipe=numbers,
        degrees=degrees,
        accumulation=settings.get("accumulation", 1),
        schedule=ScheduleSettings(prefetch_units=1, reduce_bucket_elements=10, idealised=idealised),
    )


def at(line: Timeline, phase: str, name: str) -> tuple[int, ...]:
    return next(
        moment.bytes_by_column
        for moment in line.moments
        if moment.phase == phase and moment.name == name
    )


def total(line: Timeline, phase: str, name: str) -> int:
    return sum(at(line, phase, name))


def test_one_rank_by_hand() -> None:
    # 28 parameters: 56 bytes, gradients 56, master 112, moments 224.
    line = timeline(chain(), [0, 1, 0])
    assert total(line, "init", "init") == 56 + 112
    assert total(line, "step 1 forward", "forward a") == 168 + 120
    assert total(line, "step 1 forward", "forward b") == 168 + 100 + 90
    assert total(line, "step 1 loss", "loss c") == 168 + 110 + 60
    assert total(line, "step 1 backward", "backward c") == 168 + 110 + 80 + 20 + 4 * 2
    assert total(line, "step 1 backward", "backward b") == 168 + 100 + 150 + 20 + 20 * 2
    assert total(line, "step 1 backward", "backward a") == 168 + 150 + 20 + 28 * 2
    assert total(line, "step 1 optimizer", "optimizer step") == 168 + 56 + 224 + 20
    assert total(line, "step 2 forward", "forward a") == 168 + 224 + 120


def test_four_ranks_of_idealised_windows_by_hand() -> None:
    # Shards of 2, 4 and 1 parameters: 14 bytes, gradients 14, master 28, moments 56.
    line = timeline(chain(ranks=4, idealised=True), [0, 0, 0])
    states = 14 + 28 + 56
    backward_b = at(line, "step 2 backward", "backward b")
    assert backward_b[Column.GATHERED] == 16 * 2
    assert backward_b[Column.PREFETCHED] == 8 * 2
    assert backward_b[Column.UNSHARDED_GRADIENTS] == 16 * 2
    assert backward_b[Column.REDUCE] == 4 * 2
    assert backward_b[Column.GRADIENTS] == 1 * 2
    assert sum(backward_b) == states + 200 + 50 + 20 + 32 + 16 + 32 + 8 + 2


def test_a_later_microbatch_finds_all_gradients() -> None:
    line = timeline(chain(accumulation=3), [0, 0, 0])
    first = at(line, "step 2 first microbatch forward", "forward a")
    later = at(line, "step 2 later microbatch forward", "forward a")
    assert first[Column.GRADIENTS] == 0
    assert later[Column.GRADIENTS] == 56


def test_zero_2_fills_a_bucket_in_backward_and_ddp_keeps_a_second_copy() -> None:
    zero = timeline(chain(ranks=4, sharding=Sharding.ZERO_2), [0, 0, 0])
    assert at(zero, "step 1 backward", "backward a")[Column.REDUCE] == 10 * 2
    assert at(zero, "step 1 forward", "forward a")[Column.REDUCE] == 0
    replicated = timeline(chain(ranks=4, sharding=Sharding.REPLICATED), [0, 0, 0])
    assert at(replicated, "init", "init")[Column.REDUCE] == 56


def test_the_peak_of_a_phase_is_its_highest_moment() -> None:
    line = timeline(chain(), [0, 0, 0])
    by_phase = line.by_phase()
    assert by_phase["step 2 forward"].name == "forward b"
    assert line.peak.allocated_bytes == max(each.allocated_bytes for each in by_phase.values())


@pytest.mark.parametrize("choice", [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)])
@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("sharding", list(Sharding)[1:])
def test_bases_and_options_rebuild_every_peak(
    choice: tuple[int, ...], ranks: int, sharding: Sharding
) -> None:
    """The rule of the ceilings: what the option needs, and what is retained before."""
    built = chain(ranks, sharding, accumulation=2)
    base = bases(built)
    options = [block.options[index] for block, index in zip(built.blocks, choice, strict=True)]
    before = 0
    highest = base.fixed
    for place, (option, index) in enumerate(zip(options, choice, strict=True)):
        highest = max(
            highest, base.forward[place][index] + before, base.backward[place][index] + before
        )
        before += option.retained_bytes
    assert timeline(built, choice).peak.allocated_bytes == highest


def test_reductions_are_moments_only_where_parameters_are_sharded() -> None:
    places = {moment.place for moment in timeline(chain(), [0, 0, 0]).moments}
    assert Place.REDUCE not in places
    line = timeline(chain(ranks=4, sharding=Sharding.FSDP2), [0, 0, 0])
    places = {moment.place for moment in line.moments}
    assert Place.REDUCE in places
