"""Sharding schedules by hand: three units of round sizes, what is gathered, kept and reduced."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haversack.errors import InvalidRequestError
from haversack.parallelism import BackwardPrefetch, Parallelism, Sharding
from haversack.run import NumberType, Occasion, Optimizer, OptimizerKernel, Precision, Training
from haversack_server.memory.chain import Chain, ChainBlock, Option
from haversack_server.memory.degrees import resolve
from haversack_server.memory.moments import Column, Place
from haversack_server.memory.optimizers.temporaries import temporary_bytes
from haversack_server.memory.optimizers.tensors import Updated
from haversack_server.memory.recipe import Recipe, recipe
from haversack_server.memory.schedule.settings import ScheduleSettings
from haversack_server.memory.states import UnitStates, rank_states
from haversack_server.memory.timeline import Timeline, timeline

NOTHING = Option(
    name="save",
    retained_bytes=0,
    forward_peak_bytes=0,
    backward_peak_bytes=0,
    backward_points=((0, 0),),
)
UNIT = 8  # parameters of each of three units; in fp32 32 bytes, a shard of four ranks 8
FP32 = Training(precision=Precision.FP32)


def chain(
    sharding: Sharding,
    training: Training = FP32,
    *,
    ranks: int = 4,
    replicas: int = 1,
    roots: tuple[int, ...] = (),
    **chosen: Any,
) -> Chain:
    degrees = resolve(
        Parallelism(world_size=ranks * replicas, dp_replicate=replicas, sharding=sharding)
        if sharding is not Sharding.REPLICATED
        else Parallelism(world_size=ranks, sharding=sharding)
    )
    numbers, _ = recipe(training, sharding)
    shard = UNIT // degrees.shard_ranks
    parameters = ((UNIT, shard),)
    units = [
        UnitStates(name=name, whole=UNIT, shard=shard, parameters=parameters) for name in "abc"
    ]
    everything = replace(NOTHING, backward_points=((0, UNIT),))
    return Chain(
        blocks=tuple(
            ChainBlock(name=unit.name, unit=unit, options=(everything,), root=index in roots)
            for index, unit in enumerate(units)
        ),
        states=rank_states(units, numbers, degrees),
        recipe=numbers,
        degrees=degrees,
        accumulation=training.accumulation or 1,
        schedule=ScheduleSettings(**{"reduce_bucket_elements": 10, **chosen}),
    )


def laid(built: Chain) -> Timeline:
    return timeline(built, [0] * len(built.blocks))


def columns(line: Timeline, phase: str, name: str) -> dict[str, int]:
    found = next(
        moment.bytes_by_column
        for moment in line.moments
        if (moment.phase, moment.name) == (phase, name)
    )
    states = (Column.PARAMETERS, Column.MASTER, Column.MOMENTS)
    return {
        column.name: size
        for column, size in zip(Column, found, strict=True)
        if size and column not in states
    }


def test_units_are_resharded_to_ranks_that_divide_theirs() -> None:
    shards = Parallelism(world_size=8, sharding=Sharding.FSDP2)
    assert resolve(replace(shards, reshard_ranks=4)) == resolve(shards)
    with pytest.raises(InvalidRequestError, match="to 3 of 8 ranks") as refused:
        resolve(replace(shards, reshard_ranks=3))
    assert refused.value.field == "parallelism.reshard_ranks"


def test_fsdp2_keeps_the_copy_of_the_unit_before_until_it_has_its_own() -> None:
    line = laid(chain(Sharding.FSDP2))
    # Two all-gather buffers and the parameters: three units, at the copy out of the second.
    assert columns(line, "step 2 forward", "gather b") == {"GATHERED": 32, "PREFETCHED": 64}
    assert columns(line, "step 2 forward", "forward b") == {"GATHERED": 32, "PREFETCHED": 32}


def test_fsdp2_gathers_ahead_in_backward_and_keeps_the_input_of_the_last_reduction() -> None:
    line = laid(chain(Sharding.FSDP2))
    assert columns(line, "step 2 backward", "backward b") == {
        "GRADIENTS": 8,  # c, reduced
        "GATHERED": 32,
        "PREFETCHED": 32,  # a, on its way
        "UNSHARDED_GRADIENTS": 32,
        "REDUCE": 32,  # c's input
    }
    # The unit is freed before its gradients are copied in.
    assert columns(line, "step 2 backward", "reduce b") == {
        "GRADIENTS": 8,
        "PREFETCHED": 32,
        "UNSHARDED_GRADIENTS": 32,
        "REDUCE": 32,
    }


def test_fsdp2_computes_and_reduces_in_types_of_their_own() -> None:
    """Parameters, reductions and gradients of 4 bytes, computation of 2."""
    mixed = Training(precision=Precision.FP32_BF16_COMPUTE, reduce_type=NumberType.FP32)
    line = laid(chain(Sharding.FSDP2, mixed))
    assert columns(line, "step 2 backward", "gather b") == {
        "GRADIENTS": 8,
        "GATHERED": 16,
        "PREFETCHED": 16 + 4,  # a's buffer, and the cast of its shard that goes into it
        "REDUCE": 32,  # c's input, in fp32
    }
    assert columns(line, "step 2 backward", "backward b") == {
        "GRADIENTS": 8,
        "GATHERED": 16,
        "PREFETCHED": 16,
        "UNSHARDED_GRADIENTS": 16,
        "REDUCE": 32,
    }


def test_fsdp2_holds_a_root_unit_to_the_end_and_reduces_it_before_the_first() -> None:
    line = laid(chain(Sharding.FSDP2, roots=(2,)))
    assert columns(line, "step 2 forward", "forward a")["GATHERED"] == 64
    moments = [each.name for each in line.moments if each.phase == "step 2 backward"]
    assert moments[-2:] == ["reduce c", "reduce a"]


def test_layers_of_one_unit_are_gathered_and_reduced_together() -> None:
    built = chain(Sharding.FSDP2)
    joined = replace(built.blocks[1], joins_unit_before=True)
    line = laid(replace(built, blocks=(built.blocks[0], joined, built.blocks[2])))
    assert columns(line, "step 2 forward", "forward b")["GATHERED"] == 2 * 32
    found = columns(line, "step 2 backward", "backward a")
    assert found["UNSHARDED_GRADIENTS"] == 2 * 32
    names = [moment.name for moment in line.moments if moment.phase == "step 2 backward"]
    assert [name for name in names if name.startswith("reduce")] == ["reduce c", "reduce a"]


def test_units_that_stay_gathered_are_not_gathered_again() -> None:
    line = laid(chain(Sharding.FSDP2, reshard_after_forward=False))
    assert columns(line, "step 2 backward", "backward c")["GATHERED"] == 3 * 32
    assert "PREFETCHED" not in columns(line, "step 2 backward", "backward c")


def test_resharding_to_two_ranks_keeps_half_of_a_unit() -> None:
    line = laid(chain(Sharding.FSDP2, reshard_ranks=2))
    assert columns(line, "step 2 forward", "forward c")["GATHERED"] == 32 + 2 * 16


def test_replicas_keep_all_reduce_buffers_only_where_the_types_differ() -> None:
    mixed = Training(precision=Precision.FP32_BF16_COMPUTE, reduce_type=NumberType.BF16)
    apart = laid(chain(Sharding.FSDP2, mixed, replicas=2))
    assert columns(apart, "step 2 backward", "backward a")["ALL_REDUCE"] == 2 * 4
    same = laid(chain(Sharding.FSDP2, replace(mixed, reduce_type=NumberType.FP32), replicas=2))
    assert "ALL_REDUCE" not in columns(same, "step 2 backward", "backward a")


def test_no_sync_keeps_whole_gradients_of_every_unit() -> None:
    training = replace(FP32, accumulation=4)
    line = laid(chain(Sharding.FSDP2, training, no_sync=True))
    later = columns(line, "step 2 later microbatch forward", "forward a")
    assert later["UNSHARDED_GRADIENTS"] == 3 * 32
    assert "GRADIENTS" not in later
    synced = laid(chain(Sharding.FSDP2, training))
    assert columns(synced, "step 2 later microbatch forward", "forward a")["GRADIENTS"] == 3 * 8


@pytest.mark.parametrize(
    ("prefetch", "gathered"), [(BackwardPrefetch.PRE, 64), (BackwardPrefetch.NONE, 32)]
)
def test_fsdp1_has_no_copies_and_gathers_ahead_as_it_is_told(
    prefetch: BackwardPrefetch, gathered: int
) -> None:
    line = laid(chain(Sharding.FSDP1, backward_prefetch=prefetch))
    assert columns(line, "step 2 forward", "forward b") == {"GATHERED": 32}
    assert columns(line, "step 2 backward", "backward b")["GATHERED"] == gathered


def test_fsdp1_joins_gradients_into_the_flat_one() -> None:
    line = laid(chain(Sharding.FSDP1, backward_prefetch=BackwardPrefetch.NONE))
    highest = max(
        moment.bytes_by_column[Column.UNSHARDED_GRADIENTS]
        for moment in line.moments
        if moment.place is Place.REDUCE
    )
    assert highest == 2 * 32


def test_zero_2_has_two_buckets_when_it_overlaps() -> None:
    for overlap, buckets in ((False, 1), (True, 2)):
        line = laid(chain(Sharding.ZERO_2, overlap_reduce=overlap))
        found = columns(line, "step 2 backward", "backward a")
        assert found["REDUCE"] == buckets * 10 * 4
        assert found["GRADIENTS"] == 2 * 8
        assert found["UNSHARDED_GRADIENTS"] == 32


def test_zero_3_keeps_what_it_needs_again_soon() -> None:
    alone: dict[str, Any] = {"prefetch_elements": 0, "persistent_elements": 0}
    far = laid(chain(Sharding.ZERO_3, max_reuse_elements=0, **alone))
    near = laid(chain(Sharding.ZERO_3, max_reuse_elements=10**9, **alone))
    assert columns(far, "step 2 backward", "backward c")["GATHERED"] == 32
    assert columns(near, "step 2 backward", "backward c")["GATHERED"] == 3 * 32
    capped = laid(chain(Sharding.ZERO_3, max_reuse_elements=10**9, max_live_elements=10, **alone))
    assert columns(capped, "step 2 backward", "backward c")["GATHERED"] == 32 + 10 * 4


def test_zero_3_never_shards_small_parameters() -> None:
    line = laid(chain(Sharding.ZERO_3, persistent_elements=UNIT + 1, prefetch_elements=0))
    assert columns(line, "init", "init")["GATHERED"] == 3 * 32


def test_ddp_keeps_a_second_copy_unless_gradients_are_views_of_it() -> None:
    plain = laid(chain(Sharding.REPLICATED))
    assert columns(plain, "step 1 optimizer", "optimizer step")["REDUCE"] == 3 * 32
    # Measured on an H200: the buckets of the first iteration stay beside the rebuilt ones.
    assert columns(plain, "step 2 optimizer", "optimizer step")["REDUCE"] == 2 * 3 * 32
    views = laid(chain(Sharding.REPLICATED, gradient_as_bucket_view=True))
    assert columns(views, "step 1 optimizer", "optimizer step") == {"GRADIENTS": 3 * 32}
    assert columns(views, "init", "init") == {"GRADIENTS": 3 * 32}


def test_occasions_are_moments_of_their_own() -> None:
    every = (Occasion.EVALUATION, Occasion.SAVING, Occasion.LOADING)
    line = laid(chain(Sharding.FSDP2, occasions=every, full_state_dict=True))
    phases = {moment.phase: moment for moment in line.moments[-3:]}
    assert set(phases) == {"evaluation", "saving", "loading"}
    assert phases["saving"].bytes_by_column[Column.GATHERED] == 32
    assert phases["loading"].bytes_by_column[Column.GRADIENTS] == 3 * 8
    assert phases["evaluation"].bytes_by_column[Column.GRADIENTS] == 0
    sharded = laid(chain(Sharding.FSDP2, occasions=(Occasion.SAVING,)))
    assert sharded.moments[-1].bytes_by_column[Column.GATHERED] == 0


def adam(kernel: OptimizerKernel) -> Recipe:
    return recipe(replace(FP32, optimizer=Optimizer.ADAMW, optimizer_kernel=kernel), Sharding(1))[0]


def test_temporaries_follow_the_optimizer_s_kernel() -> None:
    units = [Updated(elements=(10, 4)), Updated(elements=(3, 20))]
    assert temporary_bytes(adam(OptimizerKernel.FUSED), units) == 0
    assert temporary_bytes(adam(OptimizerKernel.FOREACH), units) == 37 * 4
    assert temporary_bytes(adam(OptimizerKernel.FOR_LOOP), units) == (3 + 2 * 20) * 4


@given(
    sharding=st.sampled_from(list(Sharding)[1:]),
    ranks=st.sampled_from([1, 2, 4]),
    accumulation=st.integers(1, 3),
    roots=st.sampled_from([(), (0,), (2,), (0, 2)]),
    chosen=st.fixed_dictionaries(
        {
            "prefetch_units": st.integers(0, 3),
            "reshard_after_forward": st.booleans(),
            "reshard_ranks": st.sampled_from([0, 2]),
            "no_sync": st.booleans(),
            "backward_prefetch": st.sampled_from(list(BackwardPrefetch)[1:]),
            "overlap_reduce": st.booleans(),
            "contiguous_gradients": st.booleans(),
            "max_reuse_elements": st.sampled_from([0, 20, 10**9]),
            "persistent_elements": st.sampled_from([0, 10**5]),
            "gradient_as_bucket_view": st.booleans(),
            "occasions": st.sampled_from([(), tuple(Occasion)[1:]]),
        }
    ),
)
@settings(max_examples=150, deadline=None)
def test_terms_are_never_negative_and_sum_to_every_moment(
    sharding: Sharding,
    ranks: int,
    accumulation: int,
    roots: tuple[int, ...],
    chosen: dict[str, Any],
) -> None:
    built = chain(
        sharding, replace(FP32, accumulation=accumulation), ranks=ranks, roots=roots, **chosen
    )
    for moment in laid(built).moments:
        assert min(moment.bytes_by_column) >= 0, moment
        assert sum(moment.bytes_by_column) == moment.allocated_bytes
