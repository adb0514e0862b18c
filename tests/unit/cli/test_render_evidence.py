"""Measured runs on the page of an estimate: both figures, and how the runs differ."""

from tests.unit.cli.samples import drawn

from haversack.cli.render.evidence import draw_evidence
from haversack.estimate import Estimate
from haversack.evidence import Evidence

NEAR = Evidence(
    id="h200-llama",
    source="measured",
    measured="peak allocated",
    measured_bytes=8 * 2**30,
    estimated_bytes=9 * 2**30,
    distance="there seq 2048 instead of 4096",
)


def test_a_measured_run_has_both_figures_and_says_how_it_differs() -> None:
    text = " ".join(drawn(draw_evidence, Estimate(evidence=(NEAR,))).split())
    assert "8.00 GiB 9.00 GiB +12.5%" in text
    assert "h200-llama: there seq 2048 instead of 4096" in text


def test_without_evidence_nothing_is_drawn() -> None:
    assert drawn(draw_evidence, Estimate()).strip() == ""
