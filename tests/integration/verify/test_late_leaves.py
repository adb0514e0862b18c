"""What is trained, called or started where one would not look at first."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from haversack.verify import Facet, FacetValue, FailureReason, VerifySchedule, VerifyVerdict

pytestmark = pytest.mark.asyncio(loop_scope="session")
Verify = Callable[..., Awaitable[Any]]


@pytest.mark.parametrize(
    ("case", "names"),
    [
        ("adapter_made_by_the_forward", ("adapters.task.bias", "adapters.task.weight")),
        (
            "low_rank_in_a_patched_forward",
            ("model.layer.forward.down", "model.layer.forward.up"),
        ),
    ],
)
async def test_wrong_gradients_of_hidden_weights_are_found(
    verify: Verify, case: str, names: tuple[str, ...]
) -> None:
    report = await verify(case=f"late:{case}")
    assert report.verdict is VerifyVerdict.DIFFERENT
    gradients = report.facet(Facet.PARAMETER_GRADIENTS)
    assert (gradients.value, gradients.names) == (FacetValue.DIFFERENT, names)


async def test_blocks_are_looked_for_in_containers(verify: Verify) -> None:
    report = await verify(case="late:blocks_in_dictionaries")
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert [each.region for each in report.recompute_counts] == ["layers.0.block", "layers.1.block"]


async def test_regions_that_nothing_calls_verify_nothing(verify: Verify) -> None:
    arguments = '{"by_method": true}'
    report = await verify(case="late:blocks_in_dictionaries", args_json=arguments)
    assert report.failure.reason is FailureReason.BAD_WORKLOAD
    assert "calls the forward of no region" in report.failure.message
    assert "layers.0.block" in report.failure.message


async def test_a_workload_that_starts_threads_is_built_for_every_run(verify: Verify) -> None:
    report = await verify(case="late:thread_of_the_factory")
    assert (report.failure, report.verdict) == (None, VerifyVerdict.EQUIVALENT)
    assert any("every run builds it anew" in said for said in report.assumptions)


@pytest.mark.parametrize("schedule", [VerifySchedule.ONE_MICROBATCH, VerifySchedule.TWO_STEPS])
async def test_an_optimizer_of_ones_own_needs_two_methods(
    verify: Verify, schedule: VerifySchedule
) -> None:
    report = await verify(case="late:optimizer_of_ones_own", schedule=schedule)
    assert (report.failure, report.verdict) == (None, VerifyVerdict.EQUIVALENT)
