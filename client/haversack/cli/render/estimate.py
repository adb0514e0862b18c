"""An estimate on a page: the verdict, then what uses the memory, when, and what would help."""

from collections.abc import Iterable

from rich.text import Text

from haversack.cli.render.evidence import draw_evidence
from haversack.cli.render.host import draw_host
from haversack.cli.render.measured import draw_measured
from haversack.cli.render.moments import draw_phases, draw_timeline, draw_windows
from haversack.cli.render.page import DIM, STRONG, Column, Page
from haversack.cli.render.shared import VERDICTS, closing, draw_verdict, figure, signed_bytes
from haversack.cli.render.trace import draw_trace
from haversack.estimate import (
    Estimate,
    EstimateRequest,
    Peak,
    Term,
    TermCategory,
)
from haversack.run import BytesKind
from haversack.units import format_bytes

_COLOURS = {
    TermCategory.PARAMETER: "blue",
    TermCategory.GRADIENT: "cyan",
    TermCategory.OPTIMIZER: "magenta",
    TermCategory.ACTIVATION: "green",
    TermCategory.TRANSIENT: "yellow",
    TermCategory.OUTSIDE: "bright_black",
}
_STAYS = "does not shrink with more GPUs"


def draw_estimate(page: Page, request: EstimateRequest, answer: Estimate, verbose: bool) -> None:
    """Draw the answer to a request; ``verbose`` adds the timeline and the source of terms."""
    draw_verdict(page, answer)
    if answer.peak is not None:
        _draw_peak(page, request, answer, answer.peak)
    _draw_terms(page, answer)
    if request.units:
        draw_windows(page, answer, verbose)
    else:
        draw_phases(page, answer)
    _draw_ranks(page, answer)
    draw_trace(page, answer)
    draw_measured(page, answer)
    draw_host(page, answer)
    draw_evidence(page, answer)
    _draw_what_ifs(page, answer)
    _draw_advice(page, answer)
    if verbose:
        _draw_sources(page, answer.terms)
        draw_timeline(page, answer)
    closing(page, answer)


def _draw_peak(page: Page, request: EstimateRequest, answer: Estimate, peak: Peak) -> None:
    place = f"{answer.peak_moment} ({answer.peak_phase}), rank {answer.peak_rank}"
    page.heading("Peak", place)
    kinds = (
        ("allocated", peak.allocated, "live tensors"),
        ("reserved", peak.reserved, "what the allocator holds"),
        ("outside", peak.outside, "context, communication"),
        ("device", peak.device, "what the device shows"),
    )
    limits = [("usable", "", format_bytes(limit), "", of) for limit, of in _limits(request)]
    columns = [Column(), *(Column(end, figures=True) for end in ("low", "expected", "high"))]
    page.table(
        [*columns, Column(style=DIM)],
        [
            (
                name,
                format_bytes(interval.low_bytes),
                format_bytes(interval.expected_bytes),
                format_bytes(interval.high_bytes),
                remark,
            )
            for name, interval, remark in kinds
        ]
        + limits,
    )
    steady = format_bytes(answer.steady_bytes)
    page.indented((f"{steady} of it are model states, which stay between steps", DIM))


def _limits(request: EstimateRequest) -> Iterable[tuple[int, str]]:
    """Give the bytes that the verdict is about, and which bytes they are."""
    budget = request.budget
    if budget is not None:
        device = budget.kind is BytesKind.DEVICE
        yield budget.bytes, "the budget, of " + ("device bytes" if device else "allocated bytes")
    elif request.device.memory_bytes is not None:
        yield request.device.memory_bytes, "of the device"


def _draw_terms(page: Page, answer: Estimate) -> None:
    """Draw the ledger, the largest term first, with its share of the peak."""
    shown = sorted((term for term in answer.terms if term.bytes), key=lambda term: -term.bytes)
    if not shown:
        return
    total = sum(term.bytes for term in shown)
    page.heading("What uses it", _moment_of_terms(answer))
    bar_width = 24 if page.is_wide else 12
    rows = [_term_row(page, term, total, bar_width) for term in shown]
    columns = (Column("term"), Column("bytes", figures=True), Column("share", figures=True))
    page.table([*columns, Column(), Column("divided over", style=DIM)], rows)
    _draw_remainders(page, answer.terms, shown, total)


def _moment_of_terms(answer: Estimate) -> str:
    """Name the moment at which the ledger was read."""
    if answer.peak is not None or not answer.timeline:
        return "on each rank, expected"
    highest = max(answer.timeline, key=lambda moment: moment.allocated_bytes)
    return f"at the highest moment, {highest.name} ({highest.phase})"


def _term_row(page: Page, term: Term, total: int, bar_width: int) -> tuple[str | Text, ...]:
    share = term.bytes / total
    divided = ", ".join(term.sharded_over) or (_STAYS if page.is_wide else "-")
    bar = page.bar(term.bytes, total, bar_width, _COLOURS.get(term.category, ""))
    written = f"{share:.0%}" if share >= 0.005 else "<1%"
    return term.name, format_bytes(term.bytes), written, bar, divided


def _draw_remainders(page: Page, terms: Iterable[Term], shown: list[Term], total: int) -> None:
    """Say what more GPUs do not help, and which terms are empty at the peak."""
    stays = sum(term.bytes for term in shown if not term.sharded_over)
    if stays:
        share = f"{stays / total:.0%}"
        mark = "" if page.is_wide else "-  "
        page.indented((f"{mark}{_STAYS}: {format_bytes(stays)}, {share}", DIM))
    elsewhere = [
        f"{term.name} ({format_bytes(term.largest_bytes)})"
        for term in terms
        if not term.bytes and term.largest_bytes
    ]
    if elsewhere:
        page.indented((f"at other moments only: {', '.join(elsewhere)}", DIM))


def _draw_ranks(page: Page, answer: Estimate) -> None:
    if len(answer.ranks) < 2:
        return
    page.heading("Ranks", "classes of equal ranks")
    page.table(
        [
            Column("class"),
            Column("ranks", figures=True),
            Column("states", figures=True),
            Column("peak", figures=True),
            Column("at", style=DIM),
        ],
        [
            (
                each.name,
                str(each.rank_count),
                format_bytes(each.steady_bytes),
                figure(each.peak.allocated.expected_bytes if each.peak else None),
                each.peak_moment,
            )
            for each in answer.ranks
        ],
    )


def _draw_what_ifs(page: Page, answer: Estimate) -> None:
    if not answer.what_ifs:
        return
    page.heading("What if", "expected allocated peak, and what it is beside the request's")
    page.table(
        [
            Column("variation"),
            Column("verdict"),
            Column("peak", figures=True),
            Column("change", figures=True),
            Column("in", style=DIM),
        ],
        [
            (
                each.name,
                Text(*VERDICTS.get(each.verdict, ("-", ""))),
                figure(each.peak.allocated.expected_bytes if each.peak else None),
                "-" if each.delta_bytes is None else signed_bytes(each.delta_bytes),
                each.peak_phase,
            )
            for each in answer.what_ifs
        ],
    )


def _draw_advice(page: Page, answer: Estimate) -> None:
    found = []
    if answer.min_gpus is not None:
        found.append(f"fewest GPUs of this kind: {answer.min_gpus}")
    if answer.max_microbatch is not None:
        largest = f"largest microbatch that fits: {answer.max_microbatch}"
        found.append(largest if answer.max_microbatch else "no microbatch fits as it is")
    if answer.advice or found:
        page.heading("What would help", "; ".join(found))
    if answer.advice:
        page.table(
            [Column("change"), Column("peak", figures=True), Column("cost", style=DIM)],
            [(each.change, signed_bytes(each.delta_bytes), each.cost) for each in answer.advice],
        )


def _draw_sources(page: Page, terms: Iterable[Term]) -> None:
    page.heading("Where each term comes from")
    for term in terms:
        here, largest = format_bytes(term.bytes), format_bytes(term.largest_bytes)
        page.indented((term.name, STRONG), f"  {here} here, {largest} at most")
        facts = {
            "formula": (term.formula,),
            "inputs": term.inputs,
            "scales with": term.scales_with,
            "gathered in": term.gathered_in,
            "source": (term.source,),
        }
        for label, values in facts.items():
            if any(values):
                page.indented((f"{label}: {', '.join(values)}", DIM), depth=2)
