"""Values of odd classes, layouts and types: none loses a worker, and none is taken for another."""

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


def value_of(report: VerifyReport, facet: Facet) -> FacetValue:
    return report.facet(facet).value


@pytest.mark.parametrize(
    "case",
    [
        "views_as_two_types",
        "of_a_class_of_its_own",
        "masked",
        "opaque",
        "vast_as_arrays",
        "resists",
    ],
)
async def test_odd_values_that_are_equal_raise_no_alarm(verify: Verify, case: str) -> None:
    report = await verify(case=f"odd_values:{case}")
    assert report.verdict is VerifyVerdict.EQUIVALENT, report.failure
    assert value_of(report, Facet.OUTPUTS) is FacetValue.EQUAL_BITWISE
    assert value_of(report, Facet.SIDE_EFFECTS) is FacetValue.EQUAL_BITWISE


async def test_types_of_less_than_a_byte_can_be_deterministic(verify: Verify) -> None:
    report = await verify(case="odd_values:less_than_a_byte", deterministic_algorithms=True)
    assert report.verdict is VerifyVerdict.EQUIVALENT, report.failure


async def test_hooks_of_every_step_are_no_side_effect(verify: Verify) -> None:
    report = await verify(case="odd_values:puts_hooks_on_again", schedule=VerifySchedule.TWO_STEPS)
    assert report.verdict is VerifyVerdict.EQUIVALENT, report.state_changes
    assert value_of(report, Facet.SIDE_EFFECTS) is FacetValue.EQUAL_BITWISE


async def test_a_value_of_a_vast_sparse_buffer_is_compared(verify: Verify) -> None:
    report = await verify(case="odd_values:writes_a_vast_one")
    assert report.verdict is VerifyVerdict.DIFFERENT
    assert value_of(report, Facet.BUFFERS) is FacetValue.DIFFERENT
    assert "values: " in report.facet(Facet.BUFFERS).detail


async def test_numbers_that_cannot_be_read_are_said_in_a_sentence(verify: Verify) -> None:
    report = await verify(case="odd_values:closed")
    assert report.failure.reason is FailureReason.BAD_WORKLOAD
    assert "a Closed, whose numbers cannot be read" in report.failure.message


async def test_a_cache_that_stays_on_is_said(verify: Verify) -> None:
    report = await verify(case="odd_values:resists")
    assert any("could not be switched off" in sentence for sentence in report.assumptions)
