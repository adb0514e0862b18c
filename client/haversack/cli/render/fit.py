"""What would fit, on a page: sizes with how far each was searched, and changes with their price."""

from haversack.cli.render.page import DIM, Column, Page
from haversack.cli.render.shared import closing, draw_verdict, signed_bytes
from haversack.estimate import Estimate, EstimateVerdict
from haversack.units import format_bytes, format_ns


def draw_fit(page: Page, answer: Estimate, verbose: bool) -> None:
    """Draw sizes and changes that fit; ``verbose`` adds what was assumed."""
    draw_verdict(page, answer)
    if answer.peak is None:
        closing(page, answer)
        return
    page.heading("What fits", "each with everything else as it is")
    page.table(
        [Column(), Column(figures=True)],
        [
            ("fewest GPUs", _number(answer.min_gpus)),
            ("largest microbatch", _number(answer.max_microbatch)),
            ("longest sequence", _number(answer.max_seq)),
        ],
    )
    _draw_changes(page, answer)
    page.bullets("Searched", answer.searches)
    if verbose:
        closing(page, answer)


def _number(found: int | None) -> str:
    return f"{found:,}" if found else "none"


def _draw_changes(page: Page, answer: Estimate) -> None:
    if answer.verdict is EstimateVerdict.FITS:
        return
    page.heading("Changes with which it fits", "the cheapest first, for a step")
    if not answer.fitting_changes:
        page.indented("none, alone or in pairs; haversack plan tries single blocks")
        return
    page.table(
        [
            Column("change"),
            Column("peak", figures=True),
            Column("high end", figures=True),
            Column("time", figures=True),
            Column("sends", figures=True),
            Column("cost", style=DIM),
        ],
        [
            (
                each.change,
                signed_bytes(each.delta_bytes),
                format_bytes(each.limited.high_bytes),
                _signed_ns(each.extra_ns),
                signed_bytes(each.extra_sent_bytes),
                each.cost,
            )
            for each in answer.fitting_changes
        ],
    )


def _signed_ns(extra_ns: int) -> str:
    return ("+" if extra_ns > 0 else "") + format_ns(extra_ns)
