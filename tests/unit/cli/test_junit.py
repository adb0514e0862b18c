"""A report as JUnit XML: what CI counts, and names that XML cannot hold."""

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from haversack.cli.junit import junit_of
from haversack.verify import (
    Facet,
    FacetResult,
    FacetSeverity,
    FacetValue,
    FailureReason,
    FirstDifference,
    VerifyFailure,
    VerifyReport,
    VerifyVerdict,
)

INFORMATION, WARNING, ERROR = (
    FacetSeverity.INFORMATION,
    FacetSeverity.WARNING,
    FacetSeverity.ERROR,
)
FACETS = (
    FacetResult(facet=Facet.OUTPUTS, value=FacetValue.EQUAL_BITWISE, severity=INFORMATION),
    FacetResult(
        facet=Facet.PARAMETER_GRADIENTS,
        value=FacetValue.DIFFERENT,
        severity=ERROR,
        detail="2 of 4 differ",
        names=("layers.0.weight",),
        fix_hint="draw outside",
    ),
    FacetResult(facet=Facet.BUFFERS, value=FacetValue.INCONCLUSIVE, severity=ERROR),
    FacetResult(facet=Facet.MEMORY, value=FacetValue.NOT_CHECKED, detail="not measured"),
    FacetResult(facet=Facet.SIDE_EFFECTS, value=FacetValue.DIFFERENT, severity=WARNING),
)
PLACE = FirstDifference(region="layers.0", operation="aten.mul", file="model.py", line=7)


def read(report: VerifyReport) -> ET.Element:
    return ET.fromstring(junit_of(report).encode())


def ends(report: VerifyReport) -> dict[str, str]:
    """How each testcase ended."""
    cases = read(report).iterfind("testsuite/testcase")
    return {str(case.get("name")): case[0].tag if len(case) else "passed" for case in cases}


def test_a_testcase_is_a_facet_and_one_is_the_verdict() -> None:
    report = VerifyReport(
        workload="mlp",
        verdict=VerifyVerdict.DIFFERENT,
        facets=FACETS,
        first_difference=PLACE,
    )
    assert ends(report) == {
        "verdict": "failure",
        "outputs": "system-out",
        "parameter_gradients": "failure",
        "buffers": "error",
        "memory": "skipped",
        "side_effects": "system-out",
    }
    suites = read(report)
    counts = {"tests": "6", "failures": "2", "errors": "1", "skipped": "1"}
    for element in (suites, suites[0]):
        assert {name: element.get(name) for name in counts} == counts
    failures = {each.get("message"): each.text for each in suites.iter("failure")}
    assert failures["2 of 4 differ"] == "layers.0.weight\ndraw outside"
    assert "first in region layers.0, aten.mul, model.py:7: " in failures


def test_an_equivalent_run_passes_with_its_warnings() -> None:
    verdict = VerifyVerdict.EQUIVALENT
    assert ends(VerifyReport(workload="mlp", verdict=verdict)) == {"verdict": "passed"}
    report = VerifyReport(workload="mlp", verdict=verdict, warnings=("printed twice",))
    (said,) = read(report).iter("system-out")
    assert said.text == "printed twice"


def test_a_failed_job_is_an_error_with_its_last_words() -> None:
    failure = VerifyFailure(
        reason=FailureReason.WORKER_LOST, message="it was lost", stderr_tail="Segmentation fault"
    )
    report = VerifyReport(workload="mlp", verdict=VerifyVerdict.FAILED, failure=failure)
    (error,) = read(report).iter("error")
    assert error.attrib == {"type": "WORKER_LOST", "message": "it was lost"}
    assert error.text == "Segmentation fault"


@given(st.text(st.characters(codec=None)))
def test_any_text_makes_valid_xml(text: str) -> None:
    report = VerifyReport(
        job_id=text,
        workload=text,
        args_json=text,
        verdict=VerifyVerdict.DIFFERENT,
        warnings=(text,),
        facets=(
            FacetResult(
                facet=Facet.OUTPUTS,
                value=FacetValue.DIFFERENT,
                severity=ERROR,
                detail=text,
                names=(text,),
            ),
        ),
    )
    assert read(report)[0].get("tests") == "2"


def test_letters_of_markup_are_only_letters() -> None:
    text = "a<b & 'c' \"d\"]]>\x00\x1b[31m\ufffe\ud800\U0001f600"
    report = VerifyReport(workload=text, verdict=VerifyVerdict.EQUIVALENT)
    found = read(report)[0].get("name")
    assert found == "a<b & 'c' \"d\"]]>\ufffd\ufffd[31m\ufffd\ufffd\U0001f600"
