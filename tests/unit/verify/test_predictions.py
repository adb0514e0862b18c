"""A plan's prediction beside what was measured: what is found, said, and not compared."""

from dataclasses import replace

import pytest
from tests.unit.verify.outcomes import REQUEST, plain, runs

from haversack.run import BlockAction
from haversack.verify import (
    Facet,
    FacetResult,
    FacetSeverity,
    FacetValue,
    RecomputeCount,
    VerifyApplied,
    VerifyEnvironment,
    VerifyPlan,
    VerifyReport,
    VerifyVerdict,
)
from haversack_server.verify import reports
from haversack_server.verify.predictions import compared_with_plan, memory_with_plan

ACTIONS = (
    BlockAction(block="block", option="recompute"),
    BlockAction(block="last", option="save"),
)
REPLAYED = (RecomputeCount(region="block", plain_entries=1, entries=2, expected_entries=2),)
MEASURED = VerifyApplied(
    recomputed_count=1,
    saved_count=1,
    predicted_peak_bytes=1000,
    measured_peak_bytes=1000,
    peak_at="backward block",
    predicted_extra_ns=10**7,
    measured_extra_ns=2 * 10**7,
    plain_ns=10**8,
)


def compared(**fields: object) -> VerifyApplied:
    given = replace(MEASURED, **fields)  # type: ignore[arg-type]
    return compared_with_plan(given, ACTIONS, REPLAYED)


def report(applied: VerifyApplied, *, strict: bool = False) -> VerifyReport:
    request = replace(REQUEST, plan=VerifyPlan(actions=ACTIONS), strict=strict)
    outcomes = replace(runs(), planned=plain(applied=applied))
    where = VerifyEnvironment(device="cpu")
    blank = reports.blank(request, "j")
    return reports.compared(blank, request, outcomes, environment=where, pinned=())


def facet(found: VerifyReport, which: Facet) -> FacetResult:
    return found.facet(which)


def test_a_step_as_predicted_is_no_finding() -> None:
    found = report(replace(MEASURED, predicted_extra_ns=None))
    assert found.applied is not None
    assert (found.applied.findings, found.applied.not_compared) == ((), ())
    assert found.applied.replayed_count == 1
    assert (found.verdict, found.warnings) == (VerifyVerdict.EQUIVALENT, ())


def test_a_peak_above_its_prediction_warns_and_decides_if_strict() -> None:
    above = replace(MEASURED, measured_peak_bytes=1065)
    found = report(above)
    memory = facet(found, Facet.MEMORY)
    assert (memory.value, memory.severity) == (FacetValue.DIFFERENT, FacetSeverity.WARNING)
    assert "65 B more than the 1000 B that it predicts" in memory.detail
    assert "--measured" in memory.fix_hint
    assert (found.verdict, found.warnings) == (VerifyVerdict.EQUIVALENT, (memory.detail,))
    assert report(above, strict=True).verdict is VerifyVerdict.DIFFERENT


@pytest.mark.parametrize("beyond", [12, 64])
def test_a_few_numbers_above_are_said_and_no_warning(beyond: int) -> None:
    found = report(replace(MEASURED, measured_peak_bytes=1000 + beyond))
    assert found.applied is not None
    assert f"{beyond} B above the prediction" in found.applied.findings[0]
    assert found.warnings == ()


def test_a_difference_that_a_facet_has_already_stays_the_first() -> None:
    above = compared(measured_peak_bytes=1065)
    unsaved = FacetResult(
        facet=Facet.MEMORY,
        value=FacetValue.DIFFERENT,
        detail="No memory is saved",
        different_count=1,
        fix_hint="Take larger regions",
    )
    both = memory_with_plan(unsaved, above)
    assert both.detail.startswith("No memory is saved. A step of the plan takes 1.04 KiB")
    assert (both.different_count, both.fix_hint) == (2, "Take larger regions")
    alone = memory_with_plan(replace(unsaved, value=FacetValue.AS_EXPECTED), above)
    assert alone.detail.startswith("A step of the plan takes 1.04 KiB")
    assert alone.different_count == 1


def test_a_prediction_that_wastes_is_said() -> None:
    assert not any("peak" in each for each in compared(measured_peak_bytes=910).findings)
    (said, _) = compared(measured_peak_bytes=900).findings
    assert said.startswith("peak: 1000 B are predicted, 11% above the 900 B measured")


def test_a_step_that_allocates_nothing_is_held_against_its_prediction_too() -> None:
    (said, _) = compared(measured_peak_bytes=0).findings
    assert said.startswith("peak: 1000 B are predicted, 0 B measured")


def test_a_peak_of_another_step_is_held_against_nothing() -> None:
    other = ("peak: not compared: the loss is another",)
    found = report(replace(MEASURED, measured_peak_bytes=5000, not_compared=other))
    assert found.applied is not None
    assert not any(each.startswith("peak") for each in found.applied.findings)
    assert found.warnings == ()


def test_blocks_that_do_not_run_again_as_planned_are_named() -> None:
    actions = (*ACTIONS, BlockAction(block="idle", option="selective aten.mm.default:0"))
    found = compared_with_plan(replace(MEASURED, segment_count=1), actions, REPLAYED)
    assert found.replayed_count == 1
    assert "regions: 1 of 2 blocks that the plan recomputes did not run again, first idle" in (
        found.findings
    )
    assert "segments: 0 were in effect in place of 1" in found.findings
    counts = facet(report(replace(MEASURED, segment_count=1)), Facet.RECOMPUTE_COUNTS)
    assert (counts.value, counts.severity) == (FacetValue.DIFFERENT, FacetSeverity.WARNING)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "time: recomputation takes 2.00 times the 10.00 ms that the plan has for it"),
        ({"plain_ns": 10**9}, "is too little beside steps of 1.00 s"),
        ({"predicted_extra_ns": 5000, "measured_extra_ns": -5, "plain_ns": 10}, "too little"),
    ],
)
def test_time_is_compared_where_it_stands_out(fields: dict[str, object], said: str) -> None:
    found = compared(**fields)
    assert said in " ".join((*found.findings, *found.not_compared))
    assert bool(found.not_compared) is bool(fields)
