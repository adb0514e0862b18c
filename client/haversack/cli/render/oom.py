"""An explained out-of-memory error on a page: the tensor, the cause, what would help."""

from rich.text import Text

from haversack.cli.render.page import BAD, DIM, STRONG, WARN, Column, Page
from haversack.cli.render.shared import closing, signed_bytes
from haversack.estimate import Estimate
from haversack.questions import OomExplanation, OomMatch, OomMatchKind, OutOfMemory
from haversack.units import format_bytes

_FIGURES = {
    "requested_bytes": "asked for",
    "allocated_bytes": "allocated by PyTorch",
    "unallocated_bytes": "held by PyTorch, unused",
    "process_bytes": "used by the process",
    "free_bytes": "free on the device",
    "allowed_bytes": "allowed to the process",
    "total_bytes": "on the device",
}


def draw_oom(page: Page, answer: Estimate, verbose: bool) -> None:
    """Draw why memory ran out; ``verbose`` adds what the estimate assumed."""
    oom = answer.oom
    if oom is None:
        page.headline("UNKNOWN", WARN, answer.reason)
        return
    known = oom.matches or oom.causes
    page.headline(*(("OUT OF MEMORY", BAD) if known else ("UNKNOWN", WARN)), oom.summary)
    if oom.figures is not None:
        _draw_figures(page, answer, oom.figures)
    _draw_matches(page, oom)
    _draw_causes(page, oom)
    if answer.advice:
        page.heading("What would lower the peak")
        page.table(
            [Column("change"), Column("peak", figures=True), Column("cost", style=DIM)],
            [(each.change, signed_bytes(each.delta_bytes), each.cost) for each in answer.advice],
        )
    if verbose or not known:
        closing(page, answer)


def _draw_figures(page: Page, answer: Estimate, figures: OutOfMemory) -> None:
    """Draw what the error says, and what was expected of the run."""
    device = figures.device_index
    page.heading("The error says", "" if device is None else f"GPU {device}")
    rows = [
        (words, format_bytes(size), "")
        for name, words in _FIGURES.items()
        if (size := getattr(figures, name)) is not None
    ]
    if answer.peak is not None:
        allocated = answer.peak.allocated
        place = f"at {answer.peak_moment} ({answer.peak_phase})"
        rows.append(("expected peak, allocated", format_bytes(allocated.expected_bytes), place))
    page.table([Column(), Column(figures=True), Column(style=DIM)], rows)


def _draw_matches(page: Page, oom: OomExplanation) -> None:
    page.heading("Tensors of that size")
    if not oom.matches:
        page.indented("none in this run, as the settings describe it")
    for match in oom.matches:
        page.indented((match.tensor, STRONG), f"  {format_bytes(match.bytes)}")
        for words in _facts(match):
            page.indented((words, DIM), depth=2)


def _facts(match: OomMatch) -> list[str]:
    facts = [f"= {match.formula}", f"made in {', '.join(match.phases)}"]
    if match.kind is OomMatchKind.IMPLIED:
        facts.append(f"only if {match.implies}")
    return facts


def _draw_causes(page: Page, oom: OomExplanation) -> None:
    if not oom.causes:
        return
    page.heading("What broke", "the surest first")
    rows = []
    for cause in oom.causes:
        name = cause.kind.name.lower().replace("_", " ")
        words = f"{cause.reason}. To do: {cause.remedy}" if cause.remedy else cause.reason
        rows.append((Text(name, STRONG), words))
    page.table([Column(whole=True), Column()], rows)
