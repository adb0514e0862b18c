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
    page.table(
        [Column(), Column("predicted", figures=True), Column("measured", figures=True), Column()],
        [
            _peak(found),
            ("regions", str(_regions(found)), str(found.replayed_count), "that run again"),
            (
                "recomputation",
                "-" if found.predicted_extra_ns is None else format_ns(found.predicted_extra_ns),
                _time(found.measured_extra_ns) if found.plain_ns else "-",
                f"beside a step of {format_ns(found.plain_ns)}, on this device"
                if found.plain_ns
                else "not timed",
            ),
        ],
    )
    for each in found.findings:
        page.indented(each)
    for each in (*found.not_compared, found.method):
        page.indented((each, DIM))


def _peak(found: VerifyApplied) -> tuple[str, str, str, str]:
    predicted, measured = found.predicted_peak_bytes, found.measured_peak_bytes
    share = f"{measured / predicted:.1%} of it; " if predicted and _is_compared(found) else ""
    return (
        "peak bytes",
        "-" if predicted is None else format_bytes(predicted),
        format_bytes(measured),
        f"{share}{format_bytes(found.plain_peak_bytes)} if all is saved; at {found.peak_at}",
    )


def _is_compared(found: VerifyApplied) -> bool:
    return not any(each.startswith("peak:") for each in found.not_compared)


def _regions(found: VerifyApplied) -> int:
    return found.recomputed_count + found.selective_count


def _time(extra_ns: int) -> str:
    return format_ns(extra_ns) if extra_ns >= 0 else f"-{format_ns(-extra_ns)}"
