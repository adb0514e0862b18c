"""A Verify report on a page: the verdict, every facet, the first difference, and what it proves."""

from collections.abc import Iterable

from rich.text import Text

from haversack.cli.render.applied import draw_applied
from haversack.cli.render.devices import told_of
from haversack.cli.render.page import BAD, DIM, GOOD, STRONG, WARN, Column, Page
from haversack.cli.render.ranges import compressed
from haversack.cli.render.ranks import draw_sharded
from haversack.cli.render.resumed import draw_resumed
from haversack.units import format_bytes, format_ns
from haversack.verify import (
    DifferenceCause,
    Facet,
    FacetResult,
    FacetSeverity,
    FacetValue,
    FirstDifference,
    ListWorkloadsResponse,
    RandomSource,
    RecomputeCount,
    VerifyFailure,
    VerifyReport,
    VerifySchedule,
    VerifyVerdict,
    WorkloadInfo,
)

_VERDICTS = {
    VerifyVerdict.EQUIVALENT: ("EQUIVALENT", GOOD),
    VerifyVerdict.DIFFERENT: ("DIFFERENT", BAD),
    VerifyVerdict.INCONCLUSIVE: ("INCONCLUSIVE", WARN),
    VerifyVerdict.FAILED: ("FAILED", BAD),
}
_FINE = (FacetValue.EQUAL_BITWISE, FacetValue.WITHIN_NOISE, FacetValue.WITHIN_TOLERANCE)


def draw_report(page: Page, report: VerifyReport, verbose: bool) -> None:
    """Draw a report; ``verbose`` adds what was pinned, who drew random numbers, how it ran."""
    _draw_verdict(page, report)
    if report.failure is not None:
        _draw_failure(page, report.failure, verbose)
    _draw_facets(page, report.facets, verbose)
    if report.first_difference is not None:
        _draw_first_difference(page, report.first_difference)
    page.bullets("Warnings", report.warnings)
    _draw_cures(page, report.facets)
    _draw_waivers(page, report)
    _draw_counts(page, report.recompute_counts)
    _draw_costs(page, report)
    if report.applied is not None:
        draw_applied(page, report.applied)
    if report.sharded is not None:
        draw_sharded(page, report.sharded)
    if report.resumed is not None:
        draw_resumed(page, report.resumed)
    if report.environment is not None:
        gpus = report.environment.gpus
        page.bullets("Of its GPUs", [f"{each.device}: {n}" for each in gpus for n in each.notes])
    if verbose:
        _draw_conditions(page, report)
    page.bullets("Assumed", [*([report.loss] if report.loss else []), *report.assumptions])
    if report.evidence is not None:
        page.bullets("What this run proves", report.evidence.proves)
        page.bullets("What it does not prove", report.evidence.does_not_prove)
    _draw_place(page, report)


def draw_workloads(page: Page, answer: ListWorkloadsResponse) -> None:
    """Draw the built-in workloads."""
    widest = max((len(each.name) for each in answer.workloads), default=0)
    for each in answer.workloads:
        expected = _VERDICTS.get(each.expected_verdict, ("-", ""))
        page.indented((each.name.ljust(widest), STRONG), "  ", expected)
        page.indented((f"{each.category}: {each.description}{_schedule(each)}", DIM), depth=2)


def _schedule(info: WorkloadInfo) -> str:
    """Tell a schedule that is not the usual one."""
    if info.schedule in (VerifySchedule.UNSPECIFIED, VerifySchedule.ONE_MICROBATCH):
        return ""
    return f" ({_words(info.schedule.name)})"


def _draw_verdict(page: Page, report: VerifyReport) -> None:
    word, style = _VERDICTS.get(report.verdict, ("UNKNOWN", WARN))
    arguments = f" with {report.args_json}" if report.args_json else ""
    page.headline(word, style, f"{report.workload}{arguments}{_because(report)}")


def _because(report: VerifyReport) -> str:
    """Name the facets that decided, or those that are equal and the number of warnings."""
    is_equivalent = report.verdict is VerifyVerdict.EQUIVALENT
    decided = [_words(each.facet.name) for each in report.facets if _decides(each, is_equivalent)]
    told = f": {', '.join(decided)}" if decided else ""
    if is_equivalent and report.warnings:
        told += f"; with {len(report.warnings)} warning{'s' * (len(report.warnings) > 1)}"
    return told


def _decides(result: FacetResult, is_equivalent: bool) -> bool:
    if is_equivalent:
        return result.value in _FINE
    return result.severity is FacetSeverity.ERROR and result.value not in _FINE


def _draw_failure(page: Page, failure: VerifyFailure, verbose: bool) -> None:
    page.blank()
    stage = f" in stage {failure.stage}" if failure.stage else ""
    status = f" (exit status {failure.exit_status})" if failure.exit_status is not None else ""
    page.indented((_words(failure.reason.name), STRONG), f"{stage}: {failure.message}{status}")
    printed = failure.stderr_tail.rstrip().splitlines()
    if printed and not verbose:
        page.indented(("--verbose shows the end of what the job printed", DIM))
    elif printed:
        page.heading("The end of what the job printed")
        for line in printed:
            page.indented((line, DIM))


def _draw_facets(page: Page, facets: Iterable[FacetResult], verbose: bool) -> None:
    rows = [
        (
            page.mark(*_mark(each)),
            _words(each.facet.name),
            _words(each.value.name),
            Text(each.detail + (_extent(each) if verbose else "")),
        )
        for each in facets
    ]
    if rows:
        page.blank()
        columns = [Column(), Column("facet", whole=True), Column("found", whole=True)]
        page.table([*columns, Column("detail")], rows)


def _mark(result: FacetResult) -> tuple[str, str, str]:
    """Give the sign of a result, its plain spelling, and its style."""
    if result.value in (*_FINE, FacetValue.AS_EXPECTED):
        return "✓", "ok", GOOD
    if result.severity is FacetSeverity.ERROR:
        return "✗", "X", BAD
    if result.severity is FacetSeverity.WARNING:
        return "!", "!", WARN
    return "·", ".", DIM


def _extent(result: FacetResult) -> str:
    """Name what differs."""
    return f" ({', '.join(compressed(result.names))})" if result.names else ""


def _draw_first_difference(page: Page, found: FirstDifference) -> None:
    page.heading("First difference")
    place = f"{found.file}:{found.line}" if found.file else ""
    cause = "" if found.cause is DifferenceCause.UNSPECIFIED else _words(found.cause.name)
    facts = {
        "region": found.region,
        "module": found.module,
        "operation": found.operation,
        "line": place,
        "cause": cause,
        "what": found.detail,
    }
    page.table([Column(style=DIM), Column()], [fact for fact in facts.items() if fact[1]])


def _draw_cures(page: Page, facets: Iterable[FacetResult]) -> None:
    hints = [each.fix_hint for each in facets if each.fix_hint]
    page.bullets("What usually cures it", list(dict.fromkeys(hints)))


def _draw_waivers(page: Page, report: VerifyReport) -> None:
    page.bullets(
        "Waived",
        [
            f"{_words(each.facet.name)}: {_words(each.value.name)}"
            + (", which the verdict leaves out" if each.used else ", not needed")
            for each in report.waivers
        ],
    )


def _draw_counts(page: Page, counts: tuple[RecomputeCount, ...]) -> None:
    """Draw entries and completions of regions; regions with equal counts share a line."""
    if not counts:
        return
    groups: dict[tuple[int, ...], list[str]] = {}
    for each in counts:
        key = (each.plain_entries, each.entries, each.expected_entries, each.completions)
        groups.setdefault(key, []).append(each.region)
    page.heading("Entries of each region", "a replay that stops early is not completed")
    headings = ("plain", "checkpointed", "expected", "completed")
    page.table(
        [Column("region"), *(Column(name, figures=True) for name in headings)],
        [(", ".join(compressed(names)), *map(str, key)) for key, names in groups.items()],
    )


def _was_checked(report: VerifyReport, facet: Facet) -> bool:
    found = (each.value for each in report.facets if each.facet is facet)
    return FacetValue.NOT_CHECKED not in found


def _draw_costs(page: Page, report: VerifyReport) -> None:
    rows = []
    memory, time = report.memory, report.time
    if memory is not None:
        plain, other = memory.plain_peak_bytes, memory.checkpointed_peak_bytes
        rows.append(("peak bytes", format_bytes(plain), format_bytes(other), _change(plain, other)))
        plain, other = memory.plain_retained_bytes, memory.checkpointed_retained_bytes
        rows.append(("kept bytes", format_bytes(plain), format_bytes(other), _change(plain, other)))
    if time is not None and _was_checked(report, Facet.TIME):
        plain, other = time.plain_ns, time.checkpointed_ns
        rows.append(("time", format_ns(plain), format_ns(other), _change(plain, other)))
    if not rows:
        return
    page.heading("What it saves and costs", "bytes kept from forward to backward; one step")
    headings = ("plain", "checkpointed", "change")
    page.table([Column(), *(Column(name, figures=True) for name in headings)], rows)
    if memory is not None and memory.predicted_peak_bytes is not None and not report.applied:
        predicted = format_bytes(memory.predicted_peak_bytes)
        said = (
            f"the plan predicts {predicted}, of its own ranks and types and with model states, "
            "which are not in these figures: not compared"
        )
        page.indented((said, DIM))


def _change(plain: int, checkpointed: int) -> str:
    return f"{checkpointed / plain - 1:+.0%}" if plain else ""


def _draw_conditions(page: Page, report: VerifyReport) -> None:
    page.bullets(
        "Random numbers in regions",
        [
            f"{each.source}: drawn in {_drawn(each)}, state "
            + ("restored" if each.restored else "not restored")
            for each in report.random_sources
        ],
    )
    page.bullets("State that regions read, and replays find or leave changed", _changes(report))
    page.bullets("Held alike in every run", report.pinned)
    if report.environment is not None:
        gpus = report.environment.gpus
        page.bullets("GPUs", [f"{each.device}: {told_of(each)}" for each in gpus])
        page.bullets("Confined by", report.environment.isolation)


def _changes(report: VerifyReport) -> list[str]:
    return [
        f"{each.name}: {each.before}, then {each.after}"
        + (f", changed by the replay of {each.region}" if each.by_replay else f", in {each.region}")
        for each in report.state_changes
    ]


def _drawn(source: RandomSource) -> str:
    given = {"forwards": source.drawn_in_forward, "replays": source.drawn_in_replay}
    return " and ".join(name for name, is_drawn in given.items() if is_drawn)


def _draw_place(page: Page, report: VerifyReport) -> None:
    found = report.environment
    facts = [f"job {report.job_id}" if report.job_id else "", f"seed {report.seed}"]
    if found is not None:
        facts += [
            f"{found.device} ({found.device_name})" if found.device_name else found.device,
            f"{found.threads} thread{'s' * (found.threads != 1)}",
            f"torch {found.torch}",
            f"Python {found.python}",
        ]
    page.blank()
    page.line((", ".join(fact for fact in facts if fact), DIM))


def _words(name: str) -> str:
    return name.lower().replace("_", " ")
