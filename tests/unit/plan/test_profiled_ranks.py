"""A profile's microbatches and replicas, place by place."""

from dataclasses import replace

import pytest

from haversack.parallelism import Parallelism, Sharding
from haversack.plan import MomentPeak, PlanRequest
from haversack.profile import OptionTable, Profile, ProfileBlock, ProfileParameter
from haversack.run import Budget, Optimizer, Training
from haversack_server.plan.answer import plan

TABLE = OptionTable(
    option=("save",),
    retained_bytes=(10,),
    forward_peak_bytes=(15,),
    backward_peak_bytes=(30,),
    extra_ns=(0,),
)
PROFILE = Profile(
    blocks=tuple(
        ProfileBlock(name=name, table=0, parameter_bytes=8, gradient_bytes=8)
        for name in ("(before a)", "a", "b", "(after b)")
    ),
    tables=(TABLE,),
    held_by_caller_bytes=7,
    standing_bytes=1,
    model_forward_peak_bytes=14,
)
ON_CPU = replace(PROFILE, device="cpu")
DIVIDED = (ProfileParameter(rows=8, row_bytes=1),)
ON_CPU_DIVIDED = replace(
    ON_CPU, blocks=tuple(replace(each, parameters=DIVIDED) for each in PROFILE.blocks)
)
MADE_WHERE = (0, 5, 0, 2)  # of what the caller holds


def forwards(profile: Profile, parallelism: Parallelism, accumulation: int = 1) -> list[int]:
    """Give what is live at the forward of each block."""
    answer = plan(
        PlanRequest(
            profile=profile,
            budget=Budget(bytes=2**40),
            parallelism=parallelism,
            training=Training(optimizer=Optimizer.SGD, accumulation=accumulation),
            frontier_points=0,
        )
    )
    moments: tuple[MomentPeak, ...] = answer.moments
    return [each.peak_bytes for each in moments if each.phase == "forward"]


def test_an_earlier_microbatch_s_output_is_there_until_the_next_has_returned() -> None:
    blocks = (
        replace(each, held_by_caller_bytes=made)
        for each, made in zip(PROFILE.blocks, MADE_WHERE, strict=True)
    )
    profile = replace(PROFILE, blocks=tuple(blocks))
    one, two = (forwards(profile, Parallelism(), count) for count in (1, 2))
    gradients = 4 * 8
    # The last part: 14 while the model runs, beside all of one output; 15 when it has returned.
    assert [b - a - gradients for a, b in zip(one, two, strict=True)] == [0, 5, 5, 7 + 14 - 15]


def test_shards_of_one_rank_are_said_to_be_none() -> None:
    request = PlanRequest(
        profile=PROFILE,
        budget=Budget(bytes=2**40),
        parallelism=Parallelism(world_size=1, sharding=Sharding.FSDP2),
        training=Training(optimizer=Optimizer.SGD),
    )
    said = plan(request).assumptions
    assert "ranks: one, so nothing is sharded; give the number of GPUs to shard over" in said


def test_buckets_stand_beside_gradients_or_are_the_gradients() -> None:
    alone = forwards(PROFILE, Parallelism())
    for parallelism in (
        Parallelism(world_size=2),
        Parallelism(world_size=2, gradient_as_bucket_view=True),
    ):
        there = forwards(ON_CPU, parallelism)
        assert [b - a for a, b in zip(alone, there, strict=True)] == [4 * 8] * 4


@pytest.mark.parametrize(("views", "copies"), [(False, 2), (True, 1)])
def test_where_it_is_no_cpu_the_first_buckets_stay_beside_those_of_the_second_step(
    views: bool, copies: int
) -> None:
    alone = forwards(PROFILE, Parallelism())
    ranks = Parallelism(world_size=2, gradient_as_bucket_view=views)
    there = forwards(replace(PROFILE, device="NVIDIA H200"), ranks)
    assert [b - a for a, b in zip(alone, there, strict=True)] == [copies * 4 * 8] * 4


def test_buffers_are_copied_for_their_broadcast_before_the_first_part_runs() -> None:
    large = replace(ON_CPU, standing_bytes=100)
    alone = forwards(large, Parallelism())
    there = forwards(large, Parallelism(dp_replicate=2))
    assert there[0] - alone[0] == 4 * 8 + (100 - 15)
    assert there[1] - alone[1] == 4 * 8


@pytest.mark.parametrize(
    "parallelism",
    [
        Parallelism(world_size=2, gradient_as_bucket_view=True),
        Parallelism(world_size=2, sharding=Sharding.FSDP2),
    ],
)
def test_an_argument_s_gradient_is_in_no_bucket_and_whole_on_every_rank(
    parallelism: Parallelism,
) -> None:
    """It comes with the last backward, and is there until the next step."""
    first, *others = ON_CPU_DIVIDED.blocks
    asking = replace(first, gradient_bytes=8 + 100)
    profile = replace(ON_CPU, blocks=(asking, *others))
    assert forwards(profile, parallelism) == forwards(ON_CPU_DIVIDED, parallelism)
    more = optimizer_step(profile, parallelism) - optimizer_step(ON_CPU_DIVIDED, parallelism)
    assert more == 100


def optimizer_step(profile: Profile, parallelism: Parallelism) -> int:
    answer = plan(
        PlanRequest(
            profile=profile,
            budget=Budget(bytes=2**40),
            parallelism=parallelism,
            training=Training(optimizer=Optimizer.SGD),
            frontier_points=0,
        )
    )
    return next(each.peak_bytes for each in answer.moments if each.phase == "optimizer")
