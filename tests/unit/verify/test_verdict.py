"""The verdict rule: every row of its table, and what decides where several are there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haversack.verify import Facet, FacetResult, FacetSeverity, FacetValue, VerifyVerdict
from haversack_server.verify.verdict import STRONG_FACETS, judge, severity

INFORMATION, WARNING, ERROR = (
    FacetSeverity.INFORMATION,
    FacetSeverity.WARNING,
    FacetSeverity.ERROR,
)
EQUIVALENT, DIFFERENT, INCONCLUSIVE = (
    VerifyVerdict.EQUIVALENT,
    VerifyVerdict.DIFFERENT,
    VerifyVerdict.INCONCLUSIVE,
)
FACETS = [facet for facet in Facet if facet]
WEAK_FACETS = (Facet.SIDE_EFFECTS, Facet.RECOMPUTE_COUNTS, Facet.MEMORY)


def found(facet: Facet, value: FacetValue, detail: str = "") -> FacetResult:
    return FacetResult(facet=facet, value=value, detail=detail)


@pytest.mark.parametrize("facet", sorted(STRONG_FACETS))
def test_a_difference_in_values_buffers_or_rng_is_an_error(facet: Facet) -> None:
    judgement = judge([found(facet, FacetValue.DIFFERENT)])
    assert judgement.verdict is DIFFERENT
    assert judgement.facets[0].severity is ERROR


@pytest.mark.parametrize("facet", WEAK_FACETS)
def test_a_difference_in_effects_counts_or_memory_is_a_warning(facet: Facet) -> None:
    judgement = judge([found(facet, FacetValue.DIFFERENT, "look here")])
    assert judgement.verdict is EQUIVALENT
    assert judgement.warnings == ("look here",)


@pytest.mark.parametrize("facet", WEAK_FACETS)
def test_strict_makes_a_warning_an_error(facet: Facet) -> None:
    judgement = judge([found(facet, FacetValue.DIFFERENT)], strict=True)
    assert judgement.verdict is DIFFERENT
    assert judgement.warnings == ()


def test_a_region_without_a_replay_is_a_warning() -> None:
    assert severity(found(Facet.RECOMPUTE_COUNTS, FacetValue.NOT_RECOMPUTED)) is WARNING


def test_values_inside_the_tolerance_are_a_warning() -> None:
    judgement = judge([found(Facet.OUTPUTS, FacetValue.WITHIN_TOLERANCE)])
    assert judgement.verdict is EQUIVALENT
    assert judgement.facets[0].severity is WARNING


@pytest.mark.parametrize(
    "value",
    [
        FacetValue.EQUAL_BITWISE,
        FacetValue.WITHIN_NOISE,
        FacetValue.NOT_CHECKED,
        FacetValue.AS_EXPECTED,
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_what_is_equal_is_information(value: FacetValue, strict: bool) -> None:
    judgement = judge([found(facet, value) for facet in FACETS], strict=strict)
    assert judgement.verdict is EQUIVALENT
    assert {each.severity for each in judgement.facets} == {INFORMATION}


@pytest.mark.parametrize("value", list(FacetValue))
def test_time_never_touches_the_verdict(value: FacetValue) -> None:
    assert judge([found(Facet.TIME, value)], strict=True).verdict is EQUIVALENT


@pytest.mark.parametrize(
    "value",
    [
        FacetValue.RAISED_ONLY_CHECKPOINTED,
        FacetValue.RAISED_ONLY_PLAIN,
        FacetValue.RAISED_ONLY_RESUMED,
    ],
)
def test_a_run_that_raises_alone_is_different_and_cannot_be_waived(value: FacetValue) -> None:
    findings = [found(Facet.OUTPUTS, value), found(Facet.SIDE_EFFECTS, FacetValue.TRUNCATED)]
    assert judge(findings, waivers=[Facet.OUTPUTS]).verdict is DIFFERENT


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (FacetValue.RAISED_ONLY_CHECKPOINTED, INCONCLUSIVE),
        (FacetValue.RAISED_ONLY_PLAIN, INCONCLUSIVE),
        (FacetValue.RAISED_ONLY_RESUMED, DIFFERENT),
    ],
)
def test_a_replay_that_raises_may_be_chance_where_two_plain_runs_differ(
    value: FacetValue, verdict: VerifyVerdict
) -> None:
    findings = [
        found(Facet.OUTPUTS, FacetValue.INCONCLUSIVE),
        found(Facet.PARAMETER_GRADIENTS, value),
    ]
    assert judge(findings).verdict is verdict


def test_a_model_that_does_not_reproduce_itself_is_never_called_different() -> None:
    findings = [
        found(Facet.OUTPUTS, FacetValue.INCONCLUSIVE),
        found(Facet.BUFFERS, FacetValue.DIFFERENT),
    ]
    assert judge(findings).verdict is INCONCLUSIVE


def test_a_truncated_probe_is_inconclusive_unless_something_differs_for_certain() -> None:
    truncated = found(Facet.SIDE_EFFECTS, FacetValue.TRUNCATED)
    assert judge([truncated]).verdict is INCONCLUSIVE
    assert judge([truncated, found(Facet.BUFFERS, FacetValue.DIFFERENT)]).verdict is DIFFERENT


def test_a_waived_facet_is_reported_and_left_out_of_the_verdict() -> None:
    judgement = judge([found(Facet.BUFFERS, FacetValue.DIFFERENT)], waivers=[Facet.BUFFERS])
    assert judgement.verdict is EQUIVALENT
    assert judgement.facets[0].value is FacetValue.DIFFERENT
    assert [(each.facet, each.used) for each in judgement.waivers] == [(Facet.BUFFERS, True)]


def test_a_waiver_that_was_not_needed_says_so() -> None:
    judgement = judge([found(Facet.BUFFERS, FacetValue.EQUAL_BITWISE)], waivers=[Facet.BUFFERS])
    assert [each.used for each in judgement.waivers] == [False]


def test_facets_are_in_the_order_of_the_enum() -> None:
    judgement = judge([found(facet, FacetValue.EQUAL_BITWISE) for facet in reversed(FACETS)])
    assert [each.facet for each in judgement.facets] == FACETS


values = st.sampled_from([value for value in FacetValue if value])


@given(st.lists(values, min_size=len(FACETS), max_size=len(FACETS)), st.sampled_from(FACETS))
def test_a_waiver_never_makes_a_verdict_worse(given: list[FacetValue], waived: Facet) -> None:
    findings = [found(facet, value) for facet, value in zip(FACETS, given, strict=True)]
    without, waiving = judge(findings), judge(findings, waivers=[waived])
    if without.verdict is EQUIVALENT:
        assert waiving.verdict is EQUIVALENT
    if waiving.verdict is not EQUIVALENT:
        assert without.verdict is not EQUIVALENT


@given(st.lists(values, min_size=len(FACETS), max_size=len(FACETS)))
def test_the_verdict_is_equivalent_exactly_where_nothing_is_an_error(
    given: list[FacetValue],
) -> None:
    judgement = judge(found(facet, value) for facet, value in zip(FACETS, given, strict=True))
    errors = [each for each in judgement.facets if each.severity is ERROR]
    assert (judgement.verdict is EQUIVALENT) == (not errors)
