"""A Verify report as JUnit XML, which CI servers show: a testcase for the verdict, one a facet.

Nothing in a report is trusted to be text that XML can hold: names come from the user's code.
"""

import re
from xml.etree import ElementTree as ET

from haversack.verify import (
    FacetResult,
    FacetSeverity,
    FacetValue,
    VerifyReport,
    VerifyVerdict,
)

# What XML 1.0 cannot hold: control characters, halves of surrogate pairs, two that are none.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNDECIDED = (FacetValue.INCONCLUSIVE, FacetValue.TRUNCATED)


def junit_of(report: VerifyReport) -> str:
    """Write a report as one testsuite, named after its workload."""
    suite = ET.Element("testsuite", name=_text(_name(report)))
    _add_properties(suite, report)
    _add_verdict(suite, report)
    for result in report.facets:
        _add_facet(suite, report, result)
    _count(suite)
    suites = ET.Element("testsuites", suite.attrib | {"name": "haversack verify"})
    suites.append(suite)
    ET.indent(suites)
    body = ET.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _name(report: VerifyReport) -> str:
    return f"{report.workload} with {report.args_json}" if report.args_json else report.workload


def _add_properties(suite: ET.Element, report: VerifyReport) -> None:
    found = {
        "job_id": report.job_id,
        "verdict": report.verdict.name,
        "seed": str(report.seed),
        "schedule": report.schedule.name,
    }
    if report.environment is not None:
        found |= {"device": report.environment.device, "torch": report.environment.torch}
    properties = ET.SubElement(suite, "properties")
    for name, value in found.items():
        ET.SubElement(properties, "property", name=name, value=_text(value))


def _add_verdict(suite: ET.Element, report: VerifyReport) -> None:
    case = _case(suite, report, "verdict")
    failure = report.failure
    if failure is not None:
        _end(case, "error", failure.reason.name, failure.message, failure.stderr_tail)
    elif report.verdict is VerifyVerdict.DIFFERENT:
        _end(case, "failure", "DIFFERENT", _place(report) or "the runs differ")
    elif report.verdict is not VerifyVerdict.EQUIVALENT:
        _end(case, "error", report.verdict.name, "the runs cannot be told apart from noise")
    if report.warnings:
        ET.SubElement(case, "system-out").text = _text("\n".join(report.warnings))


def _place(report: VerifyReport) -> str:
    found = report.first_difference
    if found is None:
        return ""
    line = f", {found.file}:{found.line}" if found.file else ""
    return f"first in region {found.region}, {found.operation}{line}: {found.detail}"


def _add_facet(suite: ET.Element, report: VerifyReport, result: FacetResult) -> None:
    case = _case(suite, report, result.facet.name.lower())
    more = "\n".join([*result.names, *([result.fix_hint] if result.fix_hint else [])])
    if result.severity is FacetSeverity.ERROR:
        kind = "error" if result.value in _UNDECIDED else "failure"
        _end(case, kind, result.value.name, result.detail, more)
    elif result.value is FacetValue.NOT_CHECKED:
        ET.SubElement(case, "skipped", message=_text(result.detail))
    else:
        said = f"{result.value.name}: {result.detail}\n{more}".strip()
        ET.SubElement(case, "system-out").text = _text(said)


def _case(suite: ET.Element, report: VerifyReport, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_text(report.workload), name=name)


def _end(case: ET.Element, how: str, kind: str, message: str, more: str = "") -> None:
    ended = ET.SubElement(case, how, type=kind, message=_text(message))
    ended.text = _text(more) or None


def _count(suite: ET.Element) -> None:
    suite.set("tests", str(len(suite.findall("testcase"))))
    for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{kind}"))))


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
