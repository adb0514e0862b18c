"""A plan as ``haversack.torch.apply`` executes it: verified, and measured beside its prediction."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from haversack.parallelism import Sharding
from haversack.plan import CountedStep
from haversack.run import BlockAction, Optimizer
from haversack.verify import (
    DifferenceCause,
    Facet,
    FacetSeverity,
    FailureReason,
    VerifyPlan,
    VerifySchedule,
    VerifyVerdict,
    VerifyWorld,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")
Verify = Callable[..., Awaitable[Any]]
LARGE = '{"batch": 256, "width": 32}'
PLAN = VerifyPlan(
    actions=(
        BlockAction(block="layers.0", option="save"),
        BlockAction(block="layers.1", option="recompute"),
        BlockAction(block="layers.2", option="selective aten.addmm.default:0"),
        BlockAction(block="layers.3", option="save"),
    ),
    predicted_peak_bytes=2**30,
    predicted_extra_ns=5,
)
# Four blocks in a segment, the first two of them in one within.
NEST = VerifyPlan(
    actions=tuple(
        BlockAction(
            block=f"layers.{place}",
            option="recompute",
            segment=1,
            inner_segments=(1,) if place < 2 else (),
        )
        for place in range(4)
    )
)
COUNTED = CountedStep(
    optimizer=Optimizer.ADAMW, standing_bytes=256 * 32 * 4, loss="the model's output", device="cpu"
)


async def test_its_regions_and_policies_are_verified_and_a_step_of_it_measured(
    verify: Verify,
) -> None:
    report = await verify("mlp", args_json=LARGE, plan=PLAN)
    assert (report.failure, report.verdict) == (None, VerifyVerdict.EQUIVALENT)
    counts = {count.region: count.entries for count in report.recompute_counts}
    assert counts == {"layers.1": 2, "layers.2": 2}
    found = report.applied
    assert (found.saved_count, found.recomputed_count, found.selective_count) == (2, 1, 1)
    assert (found.predicted_peak_bytes, found.predicted_extra_ns) == (2**30, 5)
    # What a step holds beside its activations: parameters, and inputs with their gradients.
    assert 0 < report.memory.checkpointed_peak_bytes < found.measured_peak_bytes
    assert found.measured_peak_bytes < found.plain_peak_bytes
    assert report.warnings == ()
    assert (found.replayed_count, found.segments_in_effect) == (2, 0)
    # A plan that does not say what it counts is held against nothing, however far it is off.
    assert found.findings == ()
    assert found.not_compared[0].startswith("peak: not compared: the plan does not say what")
    assert any("haversack.torch.apply" in sentence for sentence in report.assumptions)


async def test_a_selective_block_keeps_what_its_policy_names(verify: Verify) -> None:
    named = replace(PLAN.actions[2], block="layers.1")
    for_all = [replace(named, block=f"layers.{place}") for place in range(4)]
    selective = await verify("mlp", args_json=LARGE, plan=VerifyPlan(actions=tuple(for_all)))
    whole = [replace(each, option="recompute") for each in for_all]
    recomputed = await verify("mlp", args_json=LARGE, plan=VerifyPlan(actions=tuple(whole)))
    kept = 4 * 256 * 32 * 4  # bytes: the result of one product of each block, in float32
    difference = (
        selective.memory.checkpointed_retained_bytes - recomputed.memory.checkpointed_retained_bytes
    )
    assert difference == kept


async def test_a_peak_above_the_prediction_is_a_warning_that_decides_if_strict(
    verify: Verify,
) -> None:
    low = replace(PLAN, predicted_peak_bytes=1000, counted=COUNTED)
    report = await verify("mlp", args_json=LARGE, plan=low, strict=True)
    found = report.facet(Facet.MEMORY)
    assert (report.verdict, found.severity) == (VerifyVerdict.DIFFERENT, FacetSeverity.ERROR)
    assert "more than the 1000 B that it predicts. Tensors are predicted; what kernels" in (
        found.detail
    )
    assert "the AdamW that the plan counts, with its state" in report.applied.method


async def test_a_segment_runs_again_as_one_and_each_of_its_blocks_is_counted(
    verify: Verify,
) -> None:
    segmented = tuple(
        BlockAction(block=f"layers.{place}", option="recompute", segment=place // 2 + 1)
        for place in range(4)
    )
    alone = tuple(replace(action, segment=0) for action in segmented)
    report = await verify("mlp", args_json=LARGE, plan=VerifyPlan(actions=segmented))
    by_block = await verify("mlp", args_json=LARGE, plan=VerifyPlan(actions=alone))
    assert (report.failure, report.verdict) == (None, VerifyVerdict.EQUIVALENT)
    counts = {count.region: count for count in report.recompute_counts}
    assert {name: count.entries for name, count in counts.items()} == dict.fromkeys(
        ("layers.0", "layers.1", "layers.2", "layers.3"), 2
    )
    assert all(count.entries == count.expected_entries for count in counts.values())
    # The second block of a segment is stopped at the last tensor that is needed, the first is not.
    assert [count.completions for count in counts.values()] == [2, 1, 2, 1]
    assert (report.applied.segment_count, report.applied.recomputed_count) == (2, 4)
    # Between the blocks of a segment nothing is kept: one input less for each of the two.
    kept = 2 * 256 * 32 * 4  # bytes, in float32
    assert (
        by_block.memory.checkpointed_retained_bytes - report.memory.checkpointed_retained_bytes
    ) == kept


async def test_a_block_of_a_segment_within_is_expected_to_run_once_more(verify: Verify) -> None:
    report = await verify("mlp", args_json=LARGE, plan=NEST)
    assert (report.failure, report.verdict) == (None, VerifyVerdict.EQUIVALENT)
    counts = [(count.entries, count.expected_entries) for count in report.recompute_counts]
    assert counts == [(3, 3), (3, 3), (2, 2), (2, 2)]


async def test_a_replay_of_a_segment_that_differs_is_found_and_its_place_named(
    verify: Verify,
) -> None:
    actions = tuple(
        BlockAction(block=f"layers.{place}", option="recompute", segment=1) for place in range(2)
    )
    report = await verify(case="ranks:counting", plan=VerifyPlan(actions=actions))
    assert report.verdict is VerifyVerdict.DIFFERENT
    place = report.first_difference
    assert (place.region, place.operation) == ("layers.1", "aten.mul.Tensor")
    assert place.cause is DifferenceCause.SCALAR_ARGUMENT
    assert any("layers.1" in change.name for change in report.state_changes)


async def test_random_numbers_that_a_segment_does_not_restore_are_found(verify: Verify) -> None:
    actions = tuple(
        BlockAction(block=f"layers.{place}", option="recompute", segment=1) for place in range(4)
    )
    plan = VerifyPlan(actions=actions)
    report = await verify("mlp", plan=plan, preserve_rng_state=False)
    assert report.verdict is VerifyVerdict.DIFFERENT
    assert report.first_difference.cause is DifferenceCause.RNG


@pytest.mark.parametrize(
    ("schedule", "times"),
    [
        (VerifySchedule.ONE_MICROBATCH, 1),
        pytest.param(VerifySchedule.TWO_MICROBATCHES, 2, marks=pytest.mark.slow),
    ],
)
async def test_ranks_gather_weights_for_the_blocks_of_a_segment_as_for_others(
    verify: Verify, schedule: VerifySchedule, times: int
) -> None:
    world = VerifyWorld(size=2, sharding=Sharding.FSDP2)
    report = await verify("mlp", plan=NEST, world=world, args_json=LARGE, schedule=schedule)
    assert (report.failure, report.verdict) == (None, VerifyVerdict.EQUIVALENT)
    counts = [(count.entries, count.expected_entries) for count in report.recompute_counts]
    assert counts == [(3 * times, 3 * times)] * 2 + [(2 * times, 2 * times)] * 2
    # Five units: each is gathered in forward, all but the root again in backward.
    for rank in report.sharded.ranks:
        found = {
            each.kind: (each.plain_count, each.checkpointed_count) for each in rank.collectives
        }
        assert found == {"gather": (9 * times,) * 2, "reduction": (5 * times,) * 2}
        assert rank.checkpointed_peak_bytes < rank.plain_peak_bytes
        ratio = rank.predicted_checkpointed_peak_bytes / rank.checkpointed_peak_bytes
        assert 0.75 < ratio <= 1


@pytest.mark.slow
async def test_ranks_name_the_place_in_a_segment_whose_replay_differs(verify: Verify) -> None:
    actions = tuple(
        BlockAction(block=f"layers.{place}", option="recompute", segment=1) for place in range(2)
    )
    report = await verify(
        case="ranks:counting",
        plan=VerifyPlan(actions=actions),
        world=VerifyWorld(size=2, sharding=Sharding.FSDP2),
    )
    assert report.verdict is VerifyVerdict.DIFFERENT
    place = report.first_difference
    assert (place.region, place.operation) == ("layers.1", "aten.mul.Tensor")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ({"block": "blocks.0"}, "blocks.0"),
        ({"fingerprint": "0" * 16}, "the plan is of another model"),
        ({"option": "selective aten.addmm"}, "cannot be applied"),
    ],
)
async def test_a_plan_of_another_model_is_a_bad_workload(
    verify: Verify, action: dict[str, str], words: str
) -> None:
    changed: Any = action
    actions = (replace(PLAN.actions[1], **changed),)
    report = await verify("mlp", plan=VerifyPlan(actions=actions))
    assert report.failure.reason is FailureReason.BAD_WORKLOAD
    assert report.failure.stage == "build"  # before anything is run
    assert words in report.failure.message
