"""From the outcomes of runs to one finding per facet. No torch, no verdict.

``plain`` and ``again`` are the two plain runs, ``checkpointed`` the run in question; ``watched``
repeats it under probes, and ``watched_plain`` is a plain run under that of memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from haversack.units import format_bytes, format_ns
from haversack.verify import (
    Facet,
    FacetResult,
    FacetValue,
    RecomputeCount,
    VerifyApplied,
    VerifyMemory,
    VerifyTime,
)
from haversack_server.verify import moved
from haversack_server.verify.comparison import MOST_NAMES, compare_states, compare_values
from haversack_server.verify.hints import fix_hint
from haversack_server.verify.outcome import Outcome
from haversack_server.verify.predictions import counts_with_plan, memory_with_plan
from haversack_server.verify.rewritten import without_tolerance
from haversack_server.verify.rounded import as_measured

VALUE_FACETS = (
    Facet.OUTPUTS,
    Facet.INPUT_GRADIENTS,
    Facet.PARAMETER_GRADIENTS,
    Facet.BUFFERS,
)
_OTHER_FACETS = (
    Facet.RNG,
    Facet.SIDE_EFFECTS,
    Facet.RECOMPUTE_COUNTS,
    Facet.MEMORY,
    Facet.TIME,
)
_RAISED_FACETS = (Facet.OUTPUTS, Facet.INPUT_GRADIENTS, Facet.PARAMETER_GRADIENTS)
_FEWEST_TICKS = 2  # of the clock in a plain step; what it reads is off by up to one of them
_STOPPED = "The probe stopped before it had seen everything: "


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcomes:
    """The runs of a job; those that only explain are None where there is nothing to explain.

    ``planned`` is no run but whole steps that were measured, of a job with a plan. ``rounded`` are
    plain runs of other roundings, where those may be all that differs.
    """

    plain: Outcome
    again: Outcome
    checkpointed: Outcome
    watched_plain: Outcome | None = None
    watched: Outcome | None = None
    traced: Outcome | None = None
    control: Outcome | None = None
    planned: Outcome | None = None
    rounded: tuple[Outcome, ...] = ()


def repeats(plain: Outcome, again: Outcome) -> bool:
    """Whether a second plain run is the first, bit for bit, in all that is looked at."""
    same_end = (plain.raised is None) is (again.raised is None)
    return same_end and not again.rows and (again.rng, again.state) == (plain.rng, plain.state)


def is_unexplained(runs: Outcomes) -> bool:
    """Whether replays differ from their forwards, so that a trace can show where."""
    plain, checkpointed = runs.plain, runs.checkpointed
    if plain.raised or runs.again.raised or runs.again.rows:
        return False
    moved = checkpointed.rows or checkpointed.rng != plain.rng
    return bool(moved or checkpointed.raised)


def findings(runs: Outcomes, applied: VerifyApplied | None = None) -> list[FacetResult]:
    """Find the value of every facet; ``applied`` is a plan's step beside its prediction."""
    values = list(_value_findings(runs))
    if runs.plain.raised or runs.checkpointed.raised:
        return values + [_not_checked(facet, "A run raised") for facet in _OTHER_FACETS]
    counted, remembered = count_finding(recompute_counts(runs)), memory_finding(memory(runs))
    if applied is not None:
        counted = counts_with_plan(counted, applied)
        remembered = memory_with_plan(remembered, applied)
    return [
        *values,
        rng_finding(runs),
        side_effect_finding(runs),
        counted,
        remembered,
        time_finding(time(runs), max(runs.plain.tick_ns, runs.checkpointed.tick_ns)),
    ]


def _value_findings(runs: Outcomes) -> Iterable[FacetResult]:
    only_checkpointed = FacetValue.RAISED_ONLY_CHECKPOINTED
    plain_runs = [run for run in (runs.plain, runs.again) if run.raised]
    unsteady = plain_runs[0] if len(plain_runs) == 1 else None
    for facet in VALUE_FACETS:
        if unsteady and _reached(unsteady, facet):
            yield _raised(facet, FacetValue.INCONCLUSIVE, unsteady.stage, unsteady)
        elif runs.plain.raised and _reached(runs.plain, facet):
            yield _raised(facet, FacetValue.RAISED_ONLY_PLAIN, "plain", runs.plain)
        elif runs.checkpointed.raised and _reached(runs.checkpointed, facet):
            yield _raised(facet, only_checkpointed, "checkpointed", runs.checkpointed)
        elif facet is Facet.BUFFERS and (runs.plain.raised or runs.checkpointed.raised):
            yield _not_checked(facet, "A run raised")
        else:
            compared = runs.checkpointed.compared.get(facet.name, 0)
            rows = without_tolerance(runs.plain, runs.checkpointed, runs.watched, runs.traced)
            rows = as_measured(rows, runs.rounded)
            yield compare_values(facet, compared, runs.again.rows, rows)


def _reached(outcome: Outcome, facet: Facet) -> bool:
    """Whether the exception kept the run from this facet."""
    if outcome.raised is None or facet not in _RAISED_FACETS:
        return False
    return facet is not Facet.OUTPUTS or outcome.raised.part != "backward"


def _raised(facet: Facet, value: FacetValue, run: str, outcome: Outcome) -> FacetResult:
    assert outcome.raised is not None
    detail = f"Only the {run} run raised, in {outcome.raised.part}: {outcome.raised}"
    return FacetResult(facet=facet, value=value, detail=detail, fix_hint=fix_hint(facet, value))


def _not_checked(facet: Facet, detail: str) -> FacetResult:
    return FacetResult(facet=facet, value=FacetValue.NOT_CHECKED, detail=detail)


def rng_finding(runs: Outcomes) -> FacetResult:
    """Compare the states of random generators after the step."""
    plain, checkpointed = runs.plain.rng, runs.checkpointed.rng
    changed, unsteady = compare_states(Facet.RNG, plain, runs.again.rng, checkpointed)
    value, names, detail = FacetValue.EQUAL_BITWISE, changed, ""
    if unsteady:
        value, names = FacetValue.INCONCLUSIVE, unsteady
        detail = f"Two plain runs leave another state in {listed(unsteady)}"
    elif changed:
        value = FacetValue.DIFFERENT
        detail = f"The checkpointed step leaves another state in {listed(changed)}"
    return FacetResult(
        facet=Facet.RNG,
        value=value,
        detail=detail or f"{len(plain)} of {len(plain)} random generators end in equal states",
        names=tuple(names[:MOST_NAMES]),
        compared_count=len(plain),
        different_count=len(names),
        fix_hint=fix_hint(Facet.RNG, value, names),
    )


def side_effect_finding(runs: Outcomes) -> FacetResult:
    """Compare the Python state that the workload reaches after the step."""
    plain, again, checkpointed = moved.states(runs.plain, runs.again, runs.checkpointed)
    changed, unsteady = compare_states(Facet.SIDE_EFFECTS, plain, again, checkpointed)
    left_out = f"; {len(unsteady)} that two plain runs do not share are left out"
    found = FacetValue.DIFFERENT if changed else FacetValue.EQUAL_BITWISE
    detail = f"{len(plain)} of {len(plain)} things that were reached are equal"
    if changed:
        first = changed[0]
        detail = (
            f"{len(changed)} of {len(plain)} things differ, first {first}: "
            f"{plain.get(first, 'nothing')} after the plain step, "
            f"{checkpointed.get(first, 'nothing')} after the checkpointed step"
        )
    # A difference here only warns: it must not hide that not everything was seen.
    is_truncated = runs.plain.truncated or runs.checkpointed.truncated
    return FacetResult(
        facet=Facet.SIDE_EFFECTS,
        value=FacetValue.TRUNCATED if is_truncated else found,
        detail=(_STOPPED if is_truncated else "") + detail + (left_out if unsteady else ""),
        names=tuple(changed[:MOST_NAMES]),
        compared_count=len(plain),
        different_count=len(changed),
        fix_hint=fix_hint(Facet.SIDE_EFFECTS, found),
    )


def recompute_counts(runs: Outcomes) -> tuple[RecomputeCount, ...]:
    """Put the counts of the plain and of the checkpointed run side by side."""
    plain = {count.region: count.entries for count in runs.again.regions}
    return tuple(
        RecomputeCount(
            region=count.region,
            plain_entries=plain.get(count.region, 0),
            entries=count.entries,
            completions=count.completions,
            expected_entries=count.expected_entries,
        )
        for count in runs.checkpointed.regions
    )


def count_finding(counts: tuple[RecomputeCount, ...]) -> FacetResult:
    """Judge whether every region was replayed as often as it should be."""
    wrong = [count for count in counts if count.entries != count.expected_entries]
    never = [count for count in wrong if count.entries <= count.plain_entries]
    value = FacetValue.AS_EXPECTED
    if wrong:
        value = FacetValue.DIFFERENT if len(wrong) > len(never) else FacetValue.NOT_RECOMPUTED
    return FacetResult(
        facet=Facet.RECOMPUTE_COUNTS,
        value=value,
        detail=_count_detail(counts, [c for c in wrong if c not in never] or wrong),
        names=tuple(count.region for count in wrong[:MOST_NAMES]),
        compared_count=len(counts),
        different_count=len(wrong),
        fix_hint=fix_hint(Facet.RECOMPUTE_COUNTS, value),
    )


def _count_detail(counts: Sequence[RecomputeCount], wrong: Sequence[RecomputeCount]) -> str:
    if not wrong:
        once = all(count.expected_entries == 2 * count.plain_entries for count in counts)
        often = "once for each forward" if once else "as often as nesting and backwards ask"
        return f"{len(counts)} of {len(counts)} regions were replayed {often}"
    first = wrong[0]
    return (
        f"{len(wrong)} of {len(counts)} regions were not entered as expected, first "
        f"{first.region}: {first.entries} entries in place of {first.expected_entries}"
    )


def memory(runs: Outcomes) -> VerifyMemory | None:
    """Put the memory of both steps side by side; None where it was not measured.

    A GPU's allocator counts in every run: in those without probes, nothing that a probe takes.
    """
    plain, checkpointed = runs.plain, runs.checkpointed
    if plain.peak_bytes is None or checkpointed.peak_bytes is None:
        plain, checkpointed = runs.watched_plain or plain, runs.watched or checkpointed
    if plain.peak_bytes is None or checkpointed.peak_bytes is None:
        return None
    return VerifyMemory(
        plain_peak_bytes=plain.peak_bytes,
        checkpointed_peak_bytes=checkpointed.peak_bytes,
        plain_retained_bytes=plain.retained_bytes or 0,
        checkpointed_retained_bytes=checkpointed.retained_bytes or 0,
    )


def memory_finding(measured: VerifyMemory | None) -> FacetResult:
    """Judge whether activation checkpointing saved memory."""
    if measured is None:
        return _not_checked(Facet.MEMORY, "Memory was not measured")
    peaks = (measured.plain_peak_bytes, measured.checkpointed_peak_bytes)
    retained = (measured.plain_retained_bytes, measured.checkpointed_retained_bytes)
    saved = peaks[1] < peaks[0] or retained[1] < retained[0]
    value = FacetValue.AS_EXPECTED if saved else FacetValue.DIFFERENT
    figures = (
        f"peak {format_bytes(peaks[0])} plain, {format_bytes(peaks[1])} checkpointed; between "
        f"forward and backward {format_bytes(retained[0])} and {format_bytes(retained[1])}"
    )
    return FacetResult(
        facet=Facet.MEMORY,
        value=value,
        detail=f"Live {figures}" if saved else f"No memory is saved: {figures}",
        compared_count=1,
        different_count=int(not saved),
        fix_hint=fix_hint(Facet.MEMORY, value),
    )


def time(runs: Outcomes) -> VerifyTime:
    """Put the times of both steps side by side."""
    return VerifyTime(
        plain_ns=min(runs.plain.time_ns, runs.again.time_ns),
        checkpointed_ns=runs.checkpointed.time_ns,
        method="one step each, forward and backward, the checkpointed one without probes; "
        "processor time on the CPU, wall time with a synchronised device on a GPU",
    )


def time_finding(measured: VerifyTime, tick_ns: int) -> FacetResult:
    """Say what activation checkpointing cost, where a clock that moves by ``tick_ns`` shows it."""
    if measured.plain_ns < max(1, _FEWEST_TICKS * tick_ns):
        steps = f"The plain step is too short to time: {format_ns(measured.plain_ns)}"
        return _not_checked(Facet.TIME, f"{steps} on a clock that moves by {format_ns(tick_ns)}")
    ratio = measured.checkpointed_ns / measured.plain_ns
    return FacetResult(
        facet=Facet.TIME,
        value=FacetValue.AS_EXPECTED,
        detail=f"The checkpointed step took {ratio:.2f} times the plain one, in a single run each",
        compared_count=1,
    )


def listed(names: list[str]) -> str:
    """Name the first three, and say how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
