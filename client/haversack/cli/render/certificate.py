"""A certificate on a page: each phase as predicted and as executed."""

from haversack.cli.render.page import BAD, GOOD, Column, Page
from haversack.plan import Certificate
from haversack.units import format_bytes


def draw_certificate(page: Page, certificate: Certificate) -> None:
    """Draw what the whole step was seen to need, beside what was predicted."""
    again = "; planned anew after a first step" if certificate.replanned else ""
    page.heading("Certificate", f"{certificate.method}{again}")
    page.table(
        [
            Column(),
            *(Column(name, figures=True) for name in ("predicted", "executed", "of it")),
        ],
        [
            (
                each.phase,
                format_bytes(each.predicted_bytes) if each.predicted_bytes else "",
                format_bytes(each.observed_bytes),
                _share(each.observed_bytes, each.predicted_bytes),
            )
            for each in certificate.phases
        ],
    )
    word, style = ("HOLDS", GOOD) if certificate.holds else ("DOES NOT HOLD", BAD)
    peak = format_bytes(certificate.observed_peak_bytes)
    page.indented((word, style), f"  the executed peak is {peak}")
    page.bullets("Found", certificate.findings)


def _share(observed_bytes: int, predicted_bytes: int) -> str:
    return f"{observed_bytes / predicted_bytes:.1%}" if predicted_bytes else ""
