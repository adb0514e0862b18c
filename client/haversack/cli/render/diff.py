"""Two estimates side by side on a page."""

from collections.abc import Sequence

from haversack.cli.differences import Difference, Row, Threshold
from haversack.cli.render.page import BAD, GOOD, STRONG, Column, Page
from haversack.cli.render.shared import signed_bytes
from haversack.units import format_bytes


def draw_diff(page: Page, made: Difference, threshold: Threshold | None) -> None:
    """Draw the difference of the peak, then of the terms at it, then of the phases."""
    page.headline(*_word(made, threshold), _sentence(made, threshold))
    title = "Terms at the peak" if made.compared == "peak" else "Model states, not a peak"
    _draw_rows(page, title, [row for row in made.terms if row.base_bytes or row.head_bytes])
    _draw_rows(page, "Phases", [row for row in made.phases if row.delta_bytes])
    verdicts = [side.answer.verdict for side in (made.base, made.head)]
    if verdicts[0] is not verdicts[1] and all(verdicts):
        was, now = (verdict.name.lower().replace("_", " ") for verdict in verdicts)
        page.blank()
        page.line(f"The verdict was {was}, and is {now}.")
    if made.models_differ:
        page.blank()
        page.line(
            f"The two come from different memory models, {made.base.answer.model_version or '?'} "
            f"and {made.head.answer.model_version or '?'}: not all of it is the run's."
        )


def _word(made: Difference, threshold: Threshold | None) -> tuple[str, str]:
    if made.fails(threshold):
        return "ABOVE", BAD
    delta = made.total.delta_bytes
    if threshold is not None:
        return "WITHIN", GOOD
    return ("SAME" if delta == 0 else "MORE" if delta > 0 else "LESS"), STRONG


def _sentence(made: Difference, threshold: Threshold | None) -> str:
    total = made.total
    what = "the expected peak" if made.compared == "peak" else "the steady part, not a peak,"
    share = "" if made.share is None else f", {made.share:+.2%}"
    moved = f"{what} goes from {format_bytes(total.base_bytes)} to {format_bytes(total.head_bytes)}"
    limit = "" if threshold is None else f"; the limit is {_limit(threshold)}"
    return f"{moved}: {signed_bytes(total.delta_bytes)}{share}{limit}"


def _limit(threshold: Threshold) -> str:
    if threshold.share is not None:
        return f"+{threshold.share:.2%}"
    return signed_bytes(threshold.bytes or 0)


def _draw_rows(page: Page, title: str, rows: Sequence[Row]) -> None:
    if not rows:
        return
    page.heading(title)
    names = ("base", "head", "change")
    page.table(
        [Column(), *(Column(name, figures=True) for name in names)],
        [
            (
                row.name,
                format_bytes(row.base_bytes),
                format_bytes(row.head_bytes),
                signed_bytes(row.delta_bytes) if row.delta_bytes else "-",
            )
            for row in rows
        ],
    )
