"""A measured step of a plan on a page, beside what the plan predicts."""

from haversack.cli.render.page import DIM, Column, Page
from haversack.units import format_bytes, format_ns
from haversack.verify import VerifyApplied


def draw_applied(page: Page, found: VerifyApplied) -> None:
    """Draw peak and recomputation, predicted and measured."""
    counts = {
        "saved": found.saved_count,
        "recomputed": found.recomputed_count,
        "in part": found.selective_count,
        "segments": found.segment_count,
    }
    remark = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    page.heading("The plan, in effect", f"blocks: {remark}")
    predicted_bytes, predicted_ns = found.predicted_peak_bytes, found.predicted_extra_ns
    page.table(
        [Column(), Column("predicted", figures=True), Column("measured", figures=True), Column()],
        [
            (
                "peak bytes",
                "-" if predicted_bytes is None else format_bytes(predicted_bytes),
                format_bytes(found.measured_peak_bytes),
                f"{format_bytes(found.plain_peak_bytes)} if all is saved; at {found.peak_at}",
            ),
            (
                "recomputation",
                "-" if predicted_ns is None else format_ns(predicted_ns),
                _time(found.measured_extra_ns),
                "on this device",
            ),
        ],
    )
    page.indented((found.method, DIM))


def _time(extra_ns: int) -> str:
    return format_ns(extra_ns) if extra_ns >= 0 else f"-{format_ns(-extra_ns)}"
