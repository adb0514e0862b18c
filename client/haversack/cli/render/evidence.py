"""Measured runs near the one that was asked for, on a page: what to hold the estimate against."""

from haversack.cli.render.page import DIM, Column, Page
from haversack.estimate import Estimate
from haversack.evidence import Evidence
from haversack.units import format_bytes


def draw_evidence(page: Page, answer: Estimate) -> None:
    """Draw the measured runs, the nearest first; nothing where there are none."""
    if not answer.evidence:
        return
    page.heading("Measured runs nearest to it", "the same kernel profile")
    page.table(
        [
            Column("measured", figures=True),
            Column("expected here", figures=True),
            Column("off by", figures=True),
            Column("how it differs", style=DIM),
        ],
        [_row(each) for each in answer.evidence],
    )


def _row(one: Evidence) -> tuple[str, str, str, str]:
    off = one.estimated_bytes / one.measured_bytes - 1 if one.measured_bytes else 0.0
    return (
        format_bytes(one.measured_bytes),
        format_bytes(one.estimated_bytes),
        f"{off:+.1%}",
        f"{one.id}: {one.distance}",
    )
