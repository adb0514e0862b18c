"""The failure matrix in small: entry points of ``packages/jobworkloads``, one thing about each.

Truths from reading PyTorch's checkpoint and from measurements on torch 2.13: what is silent, what
raises, what is equal.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from haversack.verify import (
    Facet,
    FacetValue,
    FailureReason,
    VerifyReport,
    VerifySchedule,
    VerifyVerdict,
)

Verify = Callable[..., Awaitable[Any]]
pytestmark = pytest.mark.asyncio(loop_scope="session")
GRADIENTS = (Facet.INPUT_GRADIENTS, Facet.PARAMETER_GRADIENTS)
EXPECTED_VALUES = {FacetValue.EQUAL_BITWISE, FacetValue.AS_EXPECTED, FacetValue.NOT_CHECKED}
THREAD = VerifySchedule.BACKWARD_IN_THREAD
TWO_MICROBATCHES = VerifySchedule.TWO_MICROBATCHES
TWO_STEPS = VerifySchedule.TWO_STEPS


def unexpected(report: VerifyReport) -> dict[Facet, FacetValue]:
    return {f.facet: f.value for f in report.facets if f.value not in EXPECTED_VALUES}


def all_different(*facets: Facet) -> dict[Facet, FacetValue]:
    return dict.fromkeys(facets, FacetValue.DIFFERENT)


SILENT = {
    "numpy_mask": (*GRADIENTS, Facet.RNG),
    "gradients_in_a_bucket": (*GRADIENTS, Facet.RNG, Facet.SIDE_EFFECTS),  # what lies in the bucket
    "own_generator": (*GRADIENTS, Facet.RNG),
    "random_order_of_equal_shapes": (*GRADIENTS, Facet.RNG),
    "rrelu_last": GRADIENTS,
    "ema_in_output": (*GRADIENTS, Facet.BUFFERS),
    "global_counter_in_math": (*GRADIENTS, Facet.SIDE_EFFECTS),
    "iterator_argument": (*GRADIENTS, Facet.SIDE_EFFECTS),
    "stateful_hidden": (*GRADIENTS, Facet.MEMORY),
    "keyword_changed_after": GRADIENTS,
}


@pytest.mark.parametrize("case", SILENT)
async def test_what_pytorch_does_not_notice_is_different(verify: Verify, case: str) -> None:
    report = await verify(case=case)
    assert report.verdict is VerifyVerdict.DIFFERENT
    assert unexpected(report) == all_different(*SILENT[case])


async def test_a_buffer_that_replays_write_has_no_tolerance(verify: Verify) -> None:
    report = await verify(case="slow_average")
    assert report.verdict is VerifyVerdict.DIFFERENT
    assert unexpected(report) == all_different(Facet.BUFFERS)
    assert "inside the tolerance" in report.facet(Facet.BUFFERS).detail


@pytest.mark.parametrize(
    "case",
    [
        "nested",
        "reentrant",
        "selective",
        "function_with_a_weight",
        "unused_parameter",
        "attribute_of_the_last_forward",
        "context_variable",
    ],
)
async def test_what_is_equal_raises_no_alarm(verify: Verify, case: str) -> None:
    report = await verify(case=case, strict=True)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert unexpected(report) == {}


async def test_early_stop_is_what_breaks_rrelu(verify: Verify) -> None:
    report = await verify(case="rrelu_last", early_stop=False)
    assert report.verdict is VerifyVerdict.EQUIVALENT


@pytest.mark.parametrize("case", ["exception_only_in_replay", "shape_changes_in_replay"])
async def test_a_replay_that_raises_is_different_whatever_it_raises(
    verify: Verify, case: str
) -> None:
    report = await verify(case=case)
    assert report.verdict is VerifyVerdict.DIFFERENT
    assert report.facet(Facet.OUTPUTS).value is FacetValue.EQUAL_BITWISE
    assert unexpected(report) == dict.fromkeys(GRADIENTS, FacetValue.RAISED_ONLY_CHECKPOINTED)


async def test_a_shape_that_nobody_checks_still_raises(verify: Verify) -> None:
    report = await verify(case="shape_changes_in_replay", determinism_check="none")
    assert report.verdict is VerifyVerdict.DIFFERENT


async def test_what_only_a_plain_run_raises_is_different(verify: Verify) -> None:
    report = await verify(case="raises_only_plain")
    assert report.verdict is VerifyVerdict.DIFFERENT
    assert unexpected(report) == dict.fromkeys(GRADIENTS, FacetValue.RAISED_ONLY_PLAIN)


async def test_what_raises_both_ways_is_a_failure(verify: Verify) -> None:
    report = await verify(case="raises_in_forward")
    assert report.verdict is VerifyVerdict.FAILED
    assert report.failure.reason is FailureReason.WORKLOAD_RAISED
    assert "ValueError: never works" in report.failure.message
    assert "Traceback" in report.failure.stderr_tail


async def test_a_model_that_reads_the_clock_is_inconclusive(verify: Verify) -> None:
    report = await verify(case="reads_the_clock")
    assert report.verdict is VerifyVerdict.INCONCLUSIVE
    assert any("asks time." in sentence for sentence in report.assumptions)


async def test_a_counter_on_a_class_is_a_side_effect(verify: Verify) -> None:
    report = await verify(case="counter_of_a_class")
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert unexpected(report) == all_different(Facet.SIDE_EFFECTS)
    assert report.facet(Facet.SIDE_EFFECTS).names[0].endswith("Counting.calls")


@pytest.mark.parametrize("case", ["nothing_to_replay", "kept_on_the_context"])
async def test_a_region_that_saves_nothing_is_a_warning(verify: Verify, case: str) -> None:
    report = await verify(case=case)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert unexpected(report) == {
        Facet.RECOMPUTE_COUNTS: FacetValue.NOT_RECOMPUTED,
        Facet.MEMORY: FacetValue.DIFFERENT,
    }
    assert len(report.warnings) == 2


async def test_counts_of_nested_regions_follow_their_depth(verify: Verify) -> None:
    report = await verify(case="nested")
    counts = [(c.plain_entries, c.entries, c.expected_entries) for c in report.recompute_counts]
    assert counts == [(1, 2, 2), (1, 3, 3)]


@pytest.mark.parametrize(
    ("case", "schedule"),
    [
        ("attribute_of_the_last_forward", TWO_MICROBATCHES),
        ("context_variable", THREAD),
        ("loss_history", TWO_STEPS),
    ],
)
async def test_a_schedule_shows_what_one_microbatch_hides(
    verify: Verify, case: str, schedule: VerifySchedule
) -> None:
    assert (await verify(case=case)).verdict is VerifyVerdict.EQUIVALENT
    report = await verify(case=case, schedule=schedule)
    assert report.verdict is VerifyVerdict.DIFFERENT
    assert set(GRADIENTS) <= set(unexpected(report))
    assert report.schedule is schedule


async def test_two_steps_without_an_optimizer_say_so(verify: Verify) -> None:
    report = await verify("mlp", schedule=TWO_STEPS)
    assert any("no optimizer" in sentence for sentence in report.assumptions)


async def test_memory_is_not_measured_where_backward_has_a_thread_of_its_own(
    verify: Verify,
) -> None:
    report = await verify("mlp", schedule=THREAD)
    assert report.memory is None
    assert report.facet(Facet.MEMORY).value is FacetValue.NOT_CHECKED


@pytest.mark.parametrize("schedule", [TWO_MICROBATCHES, TWO_STEPS, THREAD])
async def test_schedules_raise_no_alarm(verify: Verify, schedule: VerifySchedule) -> None:
    report = await verify("gpt2-tiny", schedule=schedule, strict=True)
    assert report.verdict is VerifyVerdict.EQUIVALENT
