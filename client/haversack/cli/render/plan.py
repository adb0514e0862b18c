"""A plan on a page: what is saved, what is recomputed, what it costs, what the next bytes buy."""

from collections.abc import Sequence
from itertools import pairwise

from rich.text import Text

from haversack.cli.render.certificate import draw_certificate
from haversack.cli.render.page import BAD, DIM, GOOD, WARN, Column, Page
from haversack.cli.render.plan_beside import draw_baselines, draw_ranks, reading
from haversack.cli.render.ranges import compressed, indices
from haversack.cli.render.shared import closing, option_words, signed_bytes
from haversack.plan import (
    Candidates,
    FrontierPoint,
    PeakAt,
    Plan,
    PlanRequest,
    PlanStatus,
    RecomputeCandidates,
    SolvedBy,
)
from haversack.run import BlockAction, BytesKind
from haversack.units import GIB, format_bytes, format_ns

_STATUSES = {
    PlanStatus.OPTIMAL: ("OPTIMAL", GOOD),
    PlanStatus.FEASIBLE: ("FEASIBLE", WARN),
    PlanStatus.INFEASIBLE: ("INFEASIBLE", BAD),
}
_OPTION_STYLES = {"save": "green", "recompute": "yellow"}
_CELLS = {"save": ("█", "green"), "recompute": ("░", "yellow")}


def draw_plan(page: Page, request: PlanRequest, answer: Plan, verbose: bool) -> None:
    """Draw the answer to a request; ``verbose`` lists every step of the budget's conversion."""
    page.headline(*_STATUSES.get(answer.status, ("UNKNOWN", WARN)), answer.reason)
    if answer.status is PlanStatus.INFEASIBLE:
        _draw_floor(page, answer)
    elif _is_independent(request):
        _draw_saved(page, request, answer)
    elif answer.status is not PlanStatus.UNSPECIFIED:
        _draw_figures(page, answer)
        _draw_blocks(page, answer.actions, verbose)
    if answer.certificate is not None:
        draw_certificate(page, answer.certificate)
    if verbose and answer.budget is not None:
        page.bullets("Budget, step by step", answer.budget.steps)
    if verbose and answer.solved_by is not None:
        page.bullets("How it was solved", _solved(answer.solved_by))
    draw_ranks(page, answer)
    draw_baselines(page, answer)
    _draw_frontier(page, request, answer)
    rung = f"rung: {answer.rung.name.lower()}" if answer.rung else ""
    closing(page, answer, rung, f"solver: {answer.solver}")


def _solved(by: SolvedBy) -> list[str]:
    """Write which algorithm, cells and device it was, then each reason."""
    cells = f", {by.cells} cells" if by.cells else ""
    return [f"{by.algorithm}{cells}, on {by.device}", *filter(None, by.reason.split("; "))]


def _is_independent(request: PlanRequest) -> bool:
    return request.candidates is not None or request.recompute_candidates is not None


def _draw_floor(page: Page, answer: Plan) -> None:
    """Say how far down a peak can go at all, where that is, and what would lower it."""
    least = "the least peak of any plan" if answer.floor_at else "present whatever is chosen"
    rows = [
        ("budget", _budget(answer)),
        ("floor", f"{format_bytes(answer.floor_bytes)}, {least}"),
    ]
    if answer.floor_at is not None:
        rows += _place_rows(answer.floor_at)
    _draw_facts(page, rows)
    if answer.relief:
        page.heading("What would lower the floor")
        page.table(
            [Column("change"), Column("bytes", figures=True), Column("cost", style=DIM)],
            [(each.change, signed_bytes(each.delta_bytes), each.cost) for each in answer.relief],
        )


def _draw_figures(page: Page, answer: Plan) -> None:
    """Draw the planned run's peak, its budget and its price."""
    rows = [("budget", _budget(answer))]
    if answer.predicted_peak_bytes is not None:
        rows.append(("peak", f"{format_bytes(answer.predicted_peak_bytes)} allocated, expected"))
    if answer.peak_at is not None:
        rows += _place_rows(answer.peak_at)
    share = "" if answer.extra_share is None else f", {answer.extra_share:.1%} of the step"
    rows.append(("extra time", f"{format_ns(answer.extra_ns)} a step{share}"))
    if answer.gap:
        rows.append(("gap", f"at most {format_ns(answer.gap)} above the best plan"))
    rows.append(("floor", f"{format_bytes(answer.floor_bytes)}, the least peak of any plan"))
    _draw_facts(page, rows + reading(answer))


def _budget(answer: Plan) -> str:
    """Write the budget, and what it leaves where that is less."""
    conversion = answer.budget
    if conversion is None or conversion.given is None:
        return "none"
    given = conversion.given
    kind = "device" if given.kind is BytesKind.DEVICE else "allocated"
    written = f"{format_bytes(given.bytes)} {kind}"
    if conversion.allocated_bytes == given.bytes:
        return written
    left = format_bytes(conversion.allocated_bytes)
    return f"{written}, which leaves {left} expected after margins (--verbose shows them)"


def _place_rows(place: PeakAt) -> list[tuple[str, str]]:
    where = place.moment or place.block
    rows = [("at", f"{where} ({place.phase})" if place.phase else where)]
    return rows + [("" if row else "made of", term) for row, term in enumerate(place.largest_terms)]


def _draw_facts(page: Page, rows: list[tuple[str, str]]) -> None:
    page.blank()
    page.table([Column(style=DIM), Column()], rows)


def _draw_blocks(page: Page, actions: tuple[BlockAction, ...], verbose: bool) -> None:
    """Draw runs of blocks with one option, and a map with a cell for each block."""
    if not actions:
        return
    page.heading("Blocks", "in the order of the forward")
    options = [action.option for action in actions]
    if page.has_signs and len(options) <= page.width - 4 and {*options} <= {*_CELLS}:
        page.indented(*(_CELLS[option] for option in options))
    runs: list[tuple[str, tuple[int, ...], list[str]]] = []
    for action in actions:
        segment = (action.segment, *action.inner_segments)
        if runs and runs[-1][:2] == (action.option, segment):
            runs[-1][2].append(action.block)
        else:
            runs.append((action.option, segment, [action.block]))
    page.table(
        [Column(), Column("blocks", figures=True), Column()],
        [
            (
                Text(_words(option, segment, verbose), _OPTION_STYLES.get(option, "")),
                str(len(blocks)),
                _names(blocks),
            )
            for option, segment, blocks in runs
        ],
    )


def _words(option: str, segment: tuple[int, ...], verbose: bool) -> str:
    """Name an option and its segment; 1.2 is the second one within the first."""
    written = option if verbose else option_words(option)
    return f"{written}, segment {'.'.join(map(str, segment))}" if segment[0] else written


def _names(blocks: list[str]) -> str:
    return ", ".join(compressed(blocks))


def _draw_saved(page: Page, request: PlanRequest, answer: Plan) -> None:
    """Draw which candidates are saved, by index and by name, in the words of their form."""
    form = request.candidates or request.recompute_candidates
    assert form is not None
    count = len(_sizes(form))
    recomputed = sorted({*range(count)} - {*answer.saved})
    given = answer.budget.given if answer.budget else None
    rows = [("budget", format_bytes(given.bytes) if given else "none")]
    if isinstance(form, Candidates):
        rows.append(("saved bytes", format_bytes(answer.total_size_bytes)))
        rows.append(("gain", f"{answer.total_gain} of {sum(form.gain)}"))
    else:
        freed = sum(form.freed_bytes[place] for place in recomputed)
        rows.append(("freed bytes", format_bytes(freed)))
        rows.append(("added time", format_ns(answer.extra_ns)))
    if answer.gap:
        rows.append(("gap", f"the best may be better, by {answer.gap} at most"))
    rows.append(("save", _chosen(answer.saved, form.names)))
    rows.append(("recompute", _chosen(recomputed, form.names)))
    _draw_facts(page, rows)


def _sizes(form: Candidates | RecomputeCandidates) -> tuple[int, ...]:
    return form.size_bytes if isinstance(form, Candidates) else form.freed_bytes


def _chosen(places: Sequence[int], names: tuple[str, ...]) -> str:
    if not places:
        return "none"
    named = f" ({', '.join(compressed(names[place] for place in places))})" if names else ""
    return indices(places) + named


def _draw_frontier(page: Page, request: PlanRequest, answer: Plan) -> None:
    """Draw what other budgets buy: the cost of each, and for models what the next GiB spares."""
    points = answer.frontier
    if not points:
        return
    of_model = not _is_independent(request)
    cost, peak, saved = "extra time", "peak", "blocks saved"
    if not of_model:
        cost = "gain not saved" if request.candidates else "added time"
        peak, saved = "used", "saved"
    page.heading("What other budgets buy", "allocated bytes, expected" if of_model else "")
    columns = [Column(name, figures=True) for name in ("budget", peak, cost, saved)]
    spared = [*map(_next_gib, pairwise(points)), ""] if of_model else [""] * len(points)
    page.table(
        [*columns, Column("next GiB spares" if of_model else "", figures=True), Column(style=DIM)],
        [
            (
                format_bytes(point.budget_bytes),
                format_bytes(point.peak_bytes),
                str(point.cost) if request.candidates else format_ns(point.cost),
                str(point.saved_count),
                spare,
                "" if point.proven else "not proven",
            )
            for point, spare in zip(points, spared, strict=True)
        ],
    )


def _next_gib(points: tuple[FrontierPoint, FrontierPoint]) -> str:
    here, there = points
    per_gib = (here.cost - there.cost) * GIB // max(1, there.budget_bytes - here.budget_bytes)
    return format_ns(min(here.cost, per_gib))  # no bytes spare more than there is
