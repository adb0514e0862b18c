"""Values of facets that no built-in case has, in reports of jobs."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from haversack.verify import Facet, FacetSeverity, FacetValue, VerifyVerdict

Verify = Callable[..., Awaitable[Any]]
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_rounding_that_differs_is_a_warning_with_its_tolerance(verify: Verify) -> None:
    report = await verify(case="outcomes:rounds_otherwise_in_its_replay")
    found = report.facet(Facet.PARAMETER_GRADIENTS)
    assert found.value is FacetValue.WITHIN_TOLERANCE
    assert found.severity is FacetSeverity.WARNING
    assert "inside the tolerance of torch.float32 (relative 1.3e-06" in found.detail
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert found.detail in report.warnings


async def test_rounding_that_a_model_lets_grow_is_measured_on_it(verify: Verify) -> None:
    report = await verify(case="outcomes:adds_up_in_another_order")
    found = report.facet(Facet.PARAMETER_GRADIENTS)
    assert found.value is FacetValue.WITHIN_TOLERANCE
    assert "where rounding is measured" in found.detail
    assert report.verdict is VerifyVerdict.EQUIVALENT


async def test_rounding_is_not_measured_by_a_backward_that_clips(verify: Verify) -> None:
    report = await verify(case="outcomes:adds_up_in_another_order", args_json='{"clips": true}')
    assert report.facet(Facet.PARAMETER_GRADIENTS).value is FacetValue.DIFFERENT


@pytest.mark.slow
async def test_what_is_too_much_to_see_is_not_called_equal(verify: Verify) -> None:
    report = await verify(case="outcomes:reaches_too_much")
    assert report.facet(Facet.SIDE_EFFECTS).value is FacetValue.TRUNCATED
    assert report.verdict is VerifyVerdict.INCONCLUSIVE
    assert any("stopped after 5000 things" in sentence for sentence in report.assumptions)
