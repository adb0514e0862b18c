"""Places in regions that take a gradient, let numpy write, run more or take other parameters."""

import pathlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from haversack.verify import DifferenceCause, Facet, FacetValue, VerifyVerdict

Verify = Callable[..., Awaitable[Any]]
pytestmark = pytest.mark.asyncio(loop_scope="session")
CASES = pathlib.Path(__file__).parent / "packages" / "jobworkloads" / "places.py"

EXTERNAL = DifferenceCause.EXTERNAL_TENSOR
# The cause, the user's line, and what else the detail names.
PLACES = {
    "counter_behind_a_force": (
        DifferenceCause.SCALAR_ARGUMENT,
        "force * model.calls",
        "model.calls (0, then 1)",
    ),
    "norm_behind_a_force": (EXTERNAL, "model.norm(", "model.norm.running_mean"),
    "memory_that_numpy_fills": (EXTERNAL, "* noise", "no operation of the region on its own"),
    "random_numbers_saved_then_edited": (EXTERNAL, "torch.rand", "in place by aten.mul_.Tensor"),
    "operation_that_only_a_replay_runs": (
        DifferenceCause.EXTRA_OPERATIONS,
        "x = x * 2.0",
        "Operation 1 of the replay",
    ),
    "layers_that_swap": (
        EXTERNAL,
        "second(first(x)",
        "parameter other.weight comes in place of parameter linear.weight",
    ),
    "many_layers_that_count": (
        DifferenceCause.SCALAR_ARGUMENT,
        "* self.calls).sin()",
        "model.layers.0.calls (0, then 1)",
    ),
}


@pytest.mark.parametrize("case", PLACES)
async def test_the_place_and_what_changed_are_named(verify: Verify, case: str) -> None:
    cause, text, detail = PLACES[case]
    report = await verify(case=f"places:{case}")
    assert report.verdict is VerifyVerdict.DIFFERENT
    found = report.first_difference
    assert found.cause is cause
    assert text in CASES.read_text().splitlines()[found.line - 1]
    assert detail in found.detail


async def test_random_numbers_behind_a_force_are_drawn_in_forward_and_replay(
    verify: Verify,
) -> None:
    report = await verify(case="places:dropout_behind_a_force")
    assert report.verdict is VerifyVerdict.EQUIVALENT
    (source,) = report.random_sources
    assert (source.drawn_in_forward, source.drawn_in_replay, source.restored) == (True, True, True)
    report = await verify(case="places:dropout_behind_a_force", preserve_rng_state=False)
    assert report.first_difference.cause is DifferenceCause.RNG


async def test_a_region_behind_a_force_is_replayed_as_often_as_expected(verify: Verify) -> None:
    report = await verify(case="places:region_behind_a_force")
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert report.facet(Facet.RECOMPUTE_COUNTS).value is FacetValue.AS_EXPECTED
