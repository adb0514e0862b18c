"""Variations on a page: what each saves, and what a step then sends and recomputes."""

from collections.abc import Sequence

from rich.text import Text

from haversack.cli.render.page import DIM, Column, Page
from haversack.cli.render.shared import VERDICTS, closing, draw_verdict, figure, signed_bytes
from haversack.estimate import Estimate, WhatIfAnswer
from haversack.questions import Collective
from haversack.units import format_bytes, format_ns

_FITS = {
    verdict: ({"FITS": "yes", "DOES NOT FIT": "no"}.get(word, word.lower()), style)
    for verdict, (word, style) in VERDICTS.items()
}


def draw_table(page: Page, answer: Estimate, verbose: bool) -> None:
    """Draw variations, the largest saving first; ``verbose`` adds their collectives."""
    draw_verdict(page, answer)
    _draw_rows(page, answer)
    _draw_collectives(page, "Collectives of a step as it is", answer.collectives)
    if verbose:
        for each in answer.what_ifs:
            _draw_collectives(page, f"Collectives with {each.name}", each.collectives)
    if verbose or answer.peak is None:
        closing(page, answer)


def _draw_rows(page: Page, answer: Estimate) -> None:
    if not answer.what_ifs:
        return
    page.heading("What if", "expected peak; sent and recomputed in a step of each rank")
    ordered = sorted(answer.what_ifs, key=lambda each: each.delta_bytes or 0)
    columns = [Column("variation"), Column("fits")]
    columns += [Column(name, figures=True) for name in ("peak", "change", "sends", "recomputes")]
    fits = Text(*_FITS.get(answer.verdict, ("-", "")))
    as_it_is = ("as it is", fits, _peak(answer), "", _sent(answer.collectives))
    rows: list[Sequence[str | Text]] = [(*as_it_is, _time(answer.recompute_ns))]
    rows += [
        (
            each.name,
            Text(*_FITS.get(each.verdict, ("-", ""))),
            _peak(each),
            "-" if each.delta_bytes is None else signed_bytes(each.delta_bytes),
            _sent(each.collectives) if each.peak else "-",
            _time(each.recompute_ns),
        )
        for each in ordered
    ]
    page.table(columns, rows)


def _peak(answer: Estimate | WhatIfAnswer) -> str:
    return figure(answer.peak.allocated.expected_bytes if answer.peak else None)


def _sent(collectives: Sequence[Collective]) -> str:
    return format_bytes(sum(each.bytes_per_rank for each in collectives))


def _time(recompute_ns: int | None) -> str:
    return "-" if not recompute_ns else format_ns(recompute_ns)


def _draw_collectives(page: Page, title: str, collectives: Sequence[Collective]) -> None:
    if not collectives:
        return
    page.heading(title, "what each rank sends, by a ring")
    page.table(
        [
            Column("what"),
            Column("how"),
            Column("over"),
            Column("calls", figures=True),
            Column("sends", figures=True),
            Column(style=DIM),
        ],
        [
            (
                each.name,
                each.kind.name.lower().replace("_", "-"),
                each.axis,
                f"{each.count:,}",
                format_bytes(each.bytes_per_rank),
                each.formula if page.is_wide else "",
            )
            for each in collectives
        ],
    )
