"""Measured figures on a page, beside the expected ones, and what they make of the peak."""

from haversack.cli.render.page import DIM, Column, Page
from haversack.cli.render.shared import VERDICTS, signed_bytes
from haversack.estimate import Estimate
from haversack.units import format_bytes


def draw_measured(page: Page, answer: Estimate) -> None:
    """Draw residuals and the calibrated peak; nothing where nothing was measured."""
    if not answer.residuals:
        return
    page.heading("Measured", "beside what was expected")
    page.table(
        [
            Column("phase"),
            Column("rank", figures=True),
            Column("bytes"),
            Column("measured", figures=True),
            Column("expected", figures=True),
            Column("residual", figures=True),
            Column("interval", style=DIM),
        ],
        [
            (
                each.phase or "peak",
                str(each.rank),
                each.kind.name.lower(),
                format_bytes(each.measured_bytes),
                format_bytes(each.estimated.expected_bytes),
                signed_bytes(each.residual_bytes),
                each.position.name.lower(),
            )
            for each in answer.residuals
        ],
    )
    _draw_calibration(page, answer)


def _draw_calibration(page: Page, answer: Estimate) -> None:
    made = answer.calibration
    if made is None or made.peak is None:
        return
    low, expected, high = (
        format_bytes(size)
        for size in (
            made.peak.device.low_bytes,
            made.peak.device.expected_bytes,
            made.peak.device.high_bytes,
        )
    )
    word, _ = VERDICTS.get(made.verdict, ("", ""))
    verdict = f", {word}" if word else ""
    page.indented(f"calibrated device bytes: {expected} ({low} to {high}){verdict}")
    scale = f"scale {made.scale_ppm / 1e6:.3f}; {made.stands_on}; basis {made.basis.name.lower()}"
    page.indented((scale, DIM))
