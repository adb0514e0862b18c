"""A trace on a page: each phase as PyTorch ran it, beside the closed form."""

from haversack.cli.render.page import DIM, Column, Page
from haversack.estimate import Estimate
from haversack.units import format_bytes


def draw_trace(page: Page, answer: Estimate) -> None:
    """Draw what a trace found, if there was one."""
    trace = answer.trace
    if trace is None:
        return
    said = "the closed form is confirmed" if trace.confirmed else "the closed form is NOT confirmed"
    page.heading("Traced", said)
    page.table(
        [Column(), *(Column(end, figures=True) for end in ("traced", "closed form", "corrected"))],
        [
            (
                _label(phase.name),
                format_bytes(phase.traced_bytes),
                format_bytes(phase.expected_bytes),
                format_bytes(phase.corrected_bytes),
            )
            for phase in trace.phases
        ],
    )
    for sentence in (trace.method, *trace.corrections):
        page.indented((sentence, DIM))


def _label(phase: str) -> str:
    """Name a phase by what lies in it: a traced forward makes the loss too."""
    return f"{phase} and loss" if phase.endswith("forward") else phase
