"""What must hold of the built-in workloads, with torch as the judge.

The sine block: x = 8 points from -1 to 1 (float64), w = 0.7, y = sin(x * w), dropout 0.25, squared.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from haversack.verify import (
    Facet,
    FacetSeverity,
    FacetValue,
    RandomSource,
    VerifyReport,
    VerifyVerdict,
)
from haversack_server.verify.catalog import WORKLOADS

Verify = Callable[..., Awaitable[Any]]
pytestmark = pytest.mark.asyncio(loop_scope="session")
COMPARED = (Facet.OUTPUTS, Facet.INPUT_GRADIENTS, Facet.PARAMETER_GRADIENTS)
SINE = "sine-dropout-square"


@pytest.fixture(scope="module")
def reports() -> dict[tuple[object, ...], VerifyReport]:
    """The reports of this file by what was asked."""
    return {}


@pytest.fixture
def verify(verify: Verify, reports: dict[tuple[object, ...], VerifyReport]) -> Verify:
    """Run a built-in workload, unless a test of this file has asked for the same."""

    async def once(workload: str, **fields: Any) -> VerifyReport:
        asked = (workload, *sorted(fields.items()))
        if asked not in reports:
            reports[asked] = await verify(workload, **fields)
        return reports[asked]

    return once


def different(report: VerifyReport) -> tuple[Facet, ...]:
    return tuple(each.facet for each in report.facets if each.value is FacetValue.DIFFERENT)


def values(report: VerifyReport, *facets: Facet) -> set[FacetValue]:
    return {report.facet(facet).value for facet in facets}


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name.startswith(SINE)])
async def test_every_variant_of_the_sine_block_has_the_verdict_that_the_catalog_expects(
    verify: Verify, name: str
) -> None:
    report = await verify(name)
    assert report.failure is None
    assert report.verdict is WORKLOADS[name].expected_verdict
    assert different(report) == WORKLOADS[name].expected_different


@pytest.mark.parametrize("variant", ["", "-no-dropout", "-zero-input"])
async def test_the_sine_block_is_equal_bit_for_bit_and_entered_once_and_twice(
    verify: Verify, variant: str
) -> None:
    report = await verify(SINE + variant, strict=True)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert values(report, *COMPARED, Facet.RNG) == {FacetValue.EQUAL_BITWISE}
    assert [report.facet(facet).max_difference for facet in COMPARED] == [0.0, 0.0, 0.0]
    (count,) = report.recompute_counts
    assert (count.plain_entries, count.entries, count.completions) == (1, 2, 1)
    assert report.warnings == ()


async def test_the_replay_runs_to_its_end_without_early_stop(verify: Verify) -> None:
    report = await verify(SINE, early_stop=False)
    (count,) = report.recompute_counts
    assert (count.entries, count.completions) == (2, 2)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert "early_stop=False in every region" in report.pinned
    assert not any("in every region" in each for each in (await verify(SINE)).pinned)


async def test_zero_gradients_are_not_none_and_prove_little(verify: Verify) -> None:
    report = await verify(f"{SINE}-zero-input")
    assert report.facet(Facet.INPUT_GRADIENTS).compared_count == 1
    assert any("zero" in sentence for sentence in report.evidence.does_not_prove)


async def test_another_mask_in_the_replay_is_different(verify: Verify) -> None:
    report = await verify(SINE, preserve_rng_state=False)
    assert report.verdict is VerifyVerdict.DIFFERENT
    assert different(report) == (*COMPARED[1:], Facet.RNG)
    assert report.facet(Facet.RNG).names == ("torch cpu",)
    assert "preserve_rng_state" in report.facet(Facet.RNG).fix_hint


async def test_rng_differs_where_the_masks_are_equal_by_chance(verify: Verify) -> None:
    report = await verify(SINE, preserve_rng_state=False, seed=1)
    assert different(report) == (Facet.RNG,)
    assert report.verdict is VerifyVerdict.DIFFERENT


async def test_random_sources_say_who_drew_and_what_was_restored(verify: Verify) -> None:
    torch_cpu = RandomSource(source="torch cpu", drawn_in_forward=True, drawn_in_replay=True)
    report = await verify(SINE)
    assert report.random_sources == (
        RandomSource(
            source="torch cpu", drawn_in_forward=True, drawn_in_replay=True, restored=True
        ),
    )
    assert (await verify(f"{SINE}-no-preserve")).random_sources == (torch_cpu,)
    python = RandomSource(source="python", drawn_in_forward=True, drawn_in_replay=True)
    assert (await verify(f"{SINE}-python-random")).random_sources == (python,)


async def test_a_changed_setting_is_different_and_the_control_clears_it(
    verify: Verify,
) -> None:
    report = await verify(f"{SINE}-changed-setting")
    assert report.verdict is VerifyVerdict.DIFFERENT
    assert different(report) == COMPARED[1:]
    assert any("is not the cause alone" in sentence for sentence in report.evidence.proves)
    assert any("every run but the control" in sentence for sentence in report.assumptions)


async def test_batchnorm_has_equal_gradients_and_different_buffers(verify: Verify) -> None:
    report = await verify("conv-batchnorm")
    assert report.verdict is VerifyVerdict.DIFFERENT
    assert values(report, *COMPARED) == {FacetValue.EQUAL_BITWISE}
    assert "body.1.num_batches_tracked" in report.facet(Facet.BUFFERS).names
    assert "BatchNorm" in report.facet(Facet.BUFFERS).fix_hint


async def test_waiving_buffers_makes_batchnorm_equivalent_and_says_so(verify: Verify) -> None:
    report = await verify("conv-batchnorm", waivers=(Facet.BUFFERS,))
    assert report.verdict is VerifyVerdict.EQUIVALENT
    (waiver,) = report.waivers
    assert (waiver.facet, waiver.value, waiver.used) == (Facet.BUFFERS, FacetValue.DIFFERENT, True)


async def test_a_list_append_is_a_side_effect_with_its_count(verify: Verify) -> None:
    report = await verify(f"{SINE}-list-append")
    assert report.verdict is VerifyVerdict.EQUIVALENT
    effect = report.facet(Facet.SIDE_EFFECTS)
    assert effect.severity is FacetSeverity.WARNING
    assert effect.names == ("model.region.log",)
    assert "list of 1 after the plain step, list of 2 after the checkpointed" in effect.detail
    assert report.warnings == (effect.detail,)
    strict = await verify(f"{SINE}-list-append", strict=True)
    assert strict.verdict is VerifyVerdict.DIFFERENT


async def test_a_model_that_does_not_repeat_itself_is_inconclusive(verify: Verify) -> None:
    report = await verify("entropy-mask")
    assert report.verdict is VerifyVerdict.INCONCLUSIVE
    assert values(report, Facet.OUTPUTS) == {FacetValue.INCONCLUSIVE}


async def test_a_transformer_has_a_region_for_each_block(verify: Verify) -> None:
    report = await verify("gpt2-tiny", args_json='{"layers": 4}')
    assert [count.region for count in report.recompute_counts] == [f"blocks.{n}" for n in range(4)]
    assert report.memory.checkpointed_peak_bytes < report.memory.plain_peak_bytes
    assert report.memory.checkpointed_retained_bytes < report.memory.plain_retained_bytes
    assert report.facet(Facet.PARAMETER_GRADIENTS).compared_count > 40
    assert report.args_json == '{"layers": 4}'


async def test_blocks_of_a_model_without_calls_are_wrapped_and_said(verify: Verify) -> None:
    report = await verify("mlp")
    assert [count.region for count in report.recompute_counts] == [f"layers.{n}" for n in range(4)]
    assert any("layers.0, layers.1" in sentence for sentence in report.assumptions)
    fewer = await verify("mlp", regions=("layers.2",))
    assert [count.region for count in fewer.recompute_counts] == ["layers.2"]
    reentrant = await verify("mlp", use_reentrant=True)
    assert reentrant.verdict is VerifyVerdict.EQUIVALENT
    assert {count.completions for count in reentrant.recompute_counts} == {2}
    assert "use_reentrant=True in regions that Verify wraps" in reentrant.pinned


async def test_a_report_says_where_it_ran_and_what_was_held_alike(verify: Verify) -> None:
    report = await verify("mlp", seed=3, threads=2)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert report.environment.device == "cpu"
    assert report.environment.torch.startswith("2.")
    assert report.environment.threads == 2
    assert report.environment.world_size == 1
    assert any("Seed 3" in sentence for sentence in report.pinned)
    assert any("GPU" in sentence for sentence in report.evidence.does_not_prove)
    assert report.loss == "The output is a scalar and was taken as the loss"
    assert report.time.checkpointed_ns > 0


async def test_a_report_says_what_recomputation_took(verify: Verify) -> None:
    # What holds up a process while it looks at its clock makes that clock coarse: one of a few.
    times = []
    for seed in range(3, 8):
        times.append((await verify("mlp", seed=seed, threads=2)).facet(Facet.TIME))
        if times[-1].value is FacetValue.AS_EXPECTED:
            break
    time = times[-1]
    assert (time.value, time.compared_count) == (FacetValue.AS_EXPECTED, 1)
    assert "times the plain one" in time.detail
