"""When an estimate's bytes are there: phases, gather windows, the timeline."""

from collections.abc import Sequence

from haversack.cli.render.page import DIM, Column, Page
from haversack.cli.render.shared import figure
from haversack.estimate import Estimate, Moment, TermCategory
from haversack.units import format_bytes


def draw_phases(page: Page, answer: Estimate) -> None:
    """Draw the highest moment of each phase, steps 1 and 2 side by side."""
    if not answer.phases:
        return
    rows: dict[str, dict[str, int]] = {}
    places: dict[str, list[str]] = {}
    for phase in answer.phases:
        step, name = _step_of(phase.name)
        rows.setdefault(name, {})[step] = phase.peak_bytes
        moments = places.setdefault(name, [])
        if phase.peak_moment not in (*moments, name):
            moments.append(phase.peak_moment)
    highest = max(phase.peak_bytes for phase in answer.phases)
    page.heading("When", "highest allocated bytes of each phase")
    page.table(
        [
            Column("phase"),
            Column("step 1", figures=True),
            Column("step 2", figures=True),
            Column(),
            Column("highest at", style=DIM),
        ],
        [
            (
                name,
                figure(steps.get("1", steps.get(""))),
                figure(steps.get("2")),
                page.bar(max(steps.values()), highest, 12),
                ", ".join(places[name]),
            )
            for name, steps in rows.items()
        ],
    )


def _step_of(phase: str) -> tuple[str, str]:
    """Part "step 2 backward" into its step and its name."""
    words = phase.split(" ", 2)
    if len(words) == 3 and words[0] == "step":
        return words[1], words[2]
    return "", phase


MOST_WINDOWS = 40  # rows; a model of thousands of units would fill screens


def draw_windows(page: Page, answer: Estimate, verbose: bool) -> None:
    """Draw the gather windows of units: what each moment holds beside the shards.

    Of many, the first and the last ones, and how many are left out; ``verbose`` leaves none out.
    """
    if not answer.timeline:
        return
    transient = [
        place
        for place, term in enumerate(answer.terms)
        if term.category is TermCategory.TRANSIENT and term.largest_bytes
    ]
    page.heading("Gather windows, moment by moment", "idealised, not a measurement")
    names = [answer.terms[place].name.replace(" ", "\n") for place in transient]
    headings = [Column(name, figures=True) for name in ("allocated", *names)]
    page.table(
        [Column("step"), Column("moment"), *headings],
        _window_rows(answer.timeline, transient, len(answer.timeline) if verbose else MOST_WINDOWS),
    )


def _window_rows(
    timeline: Sequence[Moment], transient: list[int], most: int
) -> list[tuple[str, ...]]:
    if len(timeline) <= most:
        return [_window_row(moment, transient) for moment in timeline]
    half = most // 2
    left_out = len(timeline) - 2 * half
    return [
        *(_window_row(moment, transient) for moment in timeline[:half]),
        ("", f"... {left_out} more; --verbose shows them", *("" for _ in (None, *transient))),
        *(_window_row(moment, transient) for moment in timeline[-half:]),
    ]


def _window_row(moment: Moment, transient: list[int]) -> tuple[str, ...]:
    held = [moment.term_bytes[place] for place in transient]
    step, _ = _step_of(moment.phase)
    figures = (format_bytes(size) if size else "-" for size in held)
    return step, moment.name, format_bytes(moment.allocated_bytes), *figures


def draw_timeline(page: Page, answer: Estimate) -> None:
    """Draw every moment with its allocated bytes."""
    if not answer.timeline:
        return
    highest = max(moment.allocated_bytes for moment in answer.timeline)
    page.heading("Timeline", "allocated bytes, moment by moment")
    page.table(
        [Column("phase"), Column("moment"), Column("bytes", figures=True), Column()],
        [
            (
                moment.phase,
                moment.name,
                format_bytes(moment.allocated_bytes),
                page.bar(moment.allocated_bytes, highest, 20),
            )
            for moment in answer.timeline
        ],
    )
