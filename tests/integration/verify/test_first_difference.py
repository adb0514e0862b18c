"""The place that a report names: region, module, operation, line and class of the cause."""

import pathlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from haversack.verify import DifferenceCause, VerifySchedule

Verify = Callable[..., Awaitable[Any]]
pytestmark = pytest.mark.asyncio(loop_scope="session")
CASES = pathlib.Path(__file__).parent / "packages" / "jobworkloads" / "cases.py"

PLACES = {
    "numpy_mask": (DifferenceCause.EXTERNAL_TENSOR, "aten.lift_fresh.default", "numpy.random"),
    "own_generator": (DifferenceCause.RNG_GENERATOR, "aten.rand.generator", "generator=GENERATOR"),
    "random_order_of_equal_shapes": (DifferenceCause.CONTROL_FLOW, "", "h = function(h)"),
    "ema_in_output": (DifferenceCause.EXTERNAL_TENSOR, "aten.mul_.Tensor", "mean.mul_"),
    "global_counter_in_math": (DifferenceCause.SCALAR_ARGUMENT, "aten.mul.Tensor", "COUNTER"),
    "iterator_argument": (DifferenceCause.SCALAR_ARGUMENT, "aten.mul.Tensor", "next(scales)"),
    "stateful_hidden": (DifferenceCause.EXTERNAL_TENSOR, "aten.add.Tensor", "model.hidden)"),
    "keyword_changed_after": (DifferenceCause.EXTERNAL_TENSOR, "aten.add.Tensor", "x + scale"),
    "shape_changes_in_replay": (DifferenceCause.SCALAR_ARGUMENT, "aten.slice.Tensor", "x[: 4"),
    "exception_only_in_replay": (DifferenceCause.MISSING_OPERATIONS, "aten.t.default", "linear"),
}


@pytest.mark.parametrize("case", PLACES)
async def test_the_operation_and_the_users_line_are_named(verify: Verify, case: str) -> None:
    cause, operation, text = PLACES[case]
    found = (await verify(case=case)).first_difference
    assert found.cause is cause
    assert found.operation.startswith(operation)
    assert found.file == str(CASES)
    assert text in CASES.read_text().splitlines()[found.line - 1]


async def test_a_buffer_that_changed_is_named_with_its_module(verify: Verify) -> None:
    found = (await verify("conv-batchnorm")).first_difference
    assert (found.region, found.module) == ("body", "body.1")
    assert found.cause is DifferenceCause.EXTERNAL_TENSOR
    assert "buffer body.1." in found.detail


async def test_dropout_without_its_state_is_named_as_random(verify: Verify) -> None:
    found = (await verify("mlp", preserve_rng_state=False)).first_difference
    assert (found.region, found.module) == ("layers.0", "layers.0.2")
    assert found.cause is DifferenceCause.RNG


async def test_the_region_that_differs_is_named_among_those_that_do_not(verify: Verify) -> None:
    report = await verify(case="outcomes:differs_in_the_second_of_three_regions")
    assert [count.region for count in report.recompute_counts] == [f"{n}._region" for n in range(3)]
    found = report.first_difference
    assert (found.region, found.module) == ("1._region", "1")
    assert found.cause is DifferenceCause.SCALAR_ARGUMENT


async def test_a_region_without_a_line_of_the_users_has_none(verify: Verify) -> None:
    found = (await verify(case="outcomes:all_of_the_library")).first_difference
    assert (found.module, found.cause) == ("1.0", DifferenceCause.EXTERNAL_TENSOR)
    assert (found.file, found.line) == ("", 0)


@pytest.mark.parametrize("workload", ["gpt2-tiny", "sine-dropout-square-list-append"])
async def test_where_no_value_differs_there_is_no_place(verify: Verify, workload: str) -> None:
    assert (await verify(workload)).first_difference is None


async def test_a_difference_that_only_early_stop_makes_is_said(verify: Verify) -> None:
    report = await verify(case="rrelu_last")
    assert report.first_difference is None
    assert any("stopping early" in sentence for sentence in report.assumptions)


async def test_a_difference_is_placed_though_traced_replays_make_more_calls(verify: Verify) -> None:
    case = "nested:differs_in_the_second_step"
    found = (await verify(case=case, schedule=VerifySchedule.TWO_STEPS)).first_difference
    assert (found.region, found.operation) == ("Nested.scaled", "aten.mul.Tensor")
    assert "changed since its forward: model.in_forward (True, then False)" in found.detail


async def test_a_trace_does_not_disturb_selective_checkpointing(verify: Verify) -> None:
    report = await verify(case="selective", preserve_rng_state=False)
    assert report.first_difference.cause is DifferenceCause.RNG
    assert "dropout" in CASES.read_text().splitlines()[report.first_difference.line - 1]


async def test_probes_explain_a_replay_that_raises_too(verify: Verify) -> None:
    report = await verify("state-evaluation-toggled")
    changed = [(each.name, each.before, each.after) for each in report.state_changes]
    assert changed == [("model.drop.training", "True", "False")]
    assert "changed since its forward: model.drop.training" in report.first_difference.detail
    assert [each.saved_count for each in report.saved_values] == [5]


async def test_a_replay_that_saves_other_values_is_told_by_its_tensors(verify: Verify) -> None:
    (found,) = (await verify("rng-numpy-mask")).saved_values
    assert (found.saved_count, found.compared_count, found.different_count) == (4, 4, 1)
    assert found.first_different == "tensor 4 of those saved, tensor torch.float32 (6,)"
