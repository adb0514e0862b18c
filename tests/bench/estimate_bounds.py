"""The ends of intervals, fitted and judged by leaving out one case at a time.

A row's *score* is how far its measured peak lies beyond what is expected, as a share; a case's is
the median of its rows, as everywhere. The end of a kind of run is set by the scores of all other
cases of the kind: their highest, and beyond it as much again as it is above their median. With so
few cases a quantile of 95 % is the highest, which alone would miss every case that is the highest
itself. Rows whose deciding option their arguments hide, or that are doubtful, are not fitted to.
A kind of fewer than three cases takes in those of plain runs, then of all runs of its profile, and
its ends hold for every row of its own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.bench.estimate_adapters import adapter_runs, says_its_peak
from tests.bench.estimate_measured import cannot_be_said, measured
from tests.bench.estimate_megatron import is_hidden
from tests.bench.estimate_published import torchtitan_runs
from tests.bench.estimate_rows import Answered, megatron
from tests.bench.table import Row, at_least, at_most

from haversack.estimate import EstimateRequest
from haversack.run import Interval
from haversack_server.memory.inputs.settled import settle
from haversack_server.memory.model_run import ModelRun, model_run
from haversack_server.memory.spread import PLAIN

SECTION = "bounds"
LEAST = 0.04  # no end is nearer: rows of one machine agree better than machines and versions do
MOST_BELOW = 0.9  # a low end stays above nothing
FEWEST = 3  # cases, for a kind to have ends of its own
WRITTEN = Path(__file__).parents[2] / "server" / "haversack_server" / "memory" / "measured"


class Score(NamedTuple):
    """One row: its case, and how far it lies below and above what is expected, as shares.

    ``reach`` is how far the answer goes above what is expected before any margin, since the request
    leaves something open, such as the load of experts; in times of the expected bytes. ``ranks``
    is how many there were.
    """

    case: str
    below: float
    above: float
    reach: float
    ranks: int

    def slack(self, end: float) -> float:
        """Tell how far an upper end lies above the measured bytes; negative where it fails."""
        return (1 + end) * self.reach / (1 + self.above) - 1


@dataclass(frozen=True, slots=True)
class Ends:
    """Both ends as shares of what is expected."""

    low: float
    high: float


@cache
def scores() -> dict[tuple[str, str], list[Score]]:
    """Score every row that is fitted to, by profile and kind of run."""
    found: dict[tuple[str, str], list[Score]] = {}
    for answered in fitted_to():
        run = described(answered.request)
        expected, reach = _without_margin(answered, run)
        size = measured_bytes(answered)
        row = Score(
            answered.case,
            1 - size / expected,
            size / expected - 1,
            reach,
            real_ranks(answered, run),
        )
        found.setdefault((run.profile.name, run.kind), []).append(row)
    return found


def described(request: EstimateRequest) -> ModelRun:
    """Read a request as an answer does."""
    return model_run(settle(request).run)


def real_ranks(answered: Answered, run: ModelRun) -> int:
    """Give the ranks that the run really had: all that this project measured had one."""
    if "config" in answered.row:
        return 1
    return run.degrees.world_size


@cache
def fitted_to() -> tuple[Answered, ...]:
    """Give the answered runs that ends are fitted to."""
    tuned = filter(says_its_peak, adapter_runs())
    every = (*megatron(), *measured(), *torchtitan_runs(), *tuned)
    return tuple(each for each in every if each.known and _may_be_fitted_to(each))


def _may_be_fitted_to(answered: Answered) -> bool:
    row = answered.row
    if "config" in row:
        return not cannot_be_said(row)
    return not is_hidden(row) and "doubtful" not in row


def measured_bytes(answered: Answered) -> int:
    """Give what was measured: the allocated peak, or what torchtitan's tables print, reserved."""
    row = answered.row
    found: int = row["peak_bytes"] if "peak_bytes" in row else row["value_bytes"]
    return found


def _expected(answered: Answered) -> Interval:
    """Give our figure for it, of the last rank where rows are the last rank's."""
    assert answered.estimate is not None
    if "value_bytes" in answered.row:
        assert answered.estimate.peak is not None
        whole = answered.estimate.peak
        return whole.reserved if answered.row["quantity"] == "peak_reserved" else whole.allocated
    peak = answered.estimate.ranks[-1].peak
    assert peak is not None
    return peak.allocated


def _without_margin(answered: Answered, run: ModelRun) -> tuple[int, float]:
    """Give the expected bytes, and how far the answer reaches above them without its margin."""
    found = _expected(answered)
    if "value_bytes" in answered.row:
        return found.expected_bytes, 1.0
    with_margin = found.expected_bytes * (1 + run.profile.margin_high_permille / 1000)
    return found.expected_bytes, max(1.0, found.high_bytes / with_margin)


def ends_of(rows: Sequence[Score]) -> Ends:
    """Fit the ends to the cases of these rows."""
    cases = {row.case: [each for each in rows if each.case == row.case] for row in rows}
    below = [median(row.below for row in each) for each in cases.values()]
    above = [median(row.above for row in each) for each in cases.values()]
    return Ends(low=min(MOST_BELOW, _end(below)), high=_end(above))


def _end(of_cases: Sequence[float]) -> float:
    highest = max(of_cases)
    return max(LEAST, highest + (highest - median(of_cases)))


def bounds() -> Iterator[Row]:
    """How often the upper end held for cases that it was not fitted to, and at what cost."""
    held: list[bool] = []
    rows_held: list[bool] = []
    slack: list[float] = []
    for (profile, kind), rows in sorted(pooled().items()):
        ends, own = shipped_ends(profile, kind), scores()[profile, kind]
        left = [_left_out(rows, case) for case in sorted({row.case for row in own})]
        beyond = [[row.slack(high) for row in found] for high, found in left]
        judged = [median(of_case) for of_case in beyond]
        held += [above >= 0 for above in judged]
        rows_held += [above >= 0 for of_case in beyond for above in of_case]
        slack += judged
        what = (
            f"{profile}, {kind}: {len(left)} of {len({row.case for row in rows})} cases, "
            f"{len(own)} of {len(rows)} rows, ends -{100 * ends.low:.1f} % and "
            f"+{100 * ends.high:.1f} %; cases held when left out"
        )
        yield Row(SECTION, what, sum(above >= 0 for above in judged), f"of {len(left)}")
    yield at_least(SECTION, f"{len(held)} cases held when left out", _percent(held), 95, "%")
    yield Row(SECTION, f"{len(rows_held)} rows held when their case was", _percent(rows_held), "%")
    mean = 100 * sum(slack) / len(slack)
    yield at_most(SECTION, "mean slack of the upper end above the measurement", mean, 12, "%")


def pooled() -> dict[tuple[str, str], list[Score]]:
    """Group rows as the ends are fitted: a kind of few cases takes in plain runs, then all.

    A profile with one case has no ends: there is nothing to judge them by.
    """
    groups = {(profile, kind): _enough(profile, kind) for profile, kind in scores()}
    return {key: rows for key, rows in groups.items() if len({row.case for row in rows}) > 1}


def _enough(profile: str, kind: str) -> list[Score]:
    rows = list(scores()[profile, kind])
    others = [PLAIN, *(other for name, other in scores() if name == profile)]
    for other in others:
        if len({row.case for row in rows}) >= FEWEST:
            break
        rows += [row for row in scores().get((profile, other), []) if row not in rows]
    return rows


def shipped_ends(profile: str, kind: str) -> Ends:
    """Fit the ends of a kind to all cases; those of a few also hold for each of their rows."""
    own, ends = scores()[profile, kind], ends_of(pooled()[profile, kind])
    if len({row.case for row in own}) >= FEWEST:
        return ends
    return Ends(
        low=max(ends.low, LEAST + max(row.below for row in own)),
        high=max(ends.high, LEAST + max(row.above for row in own)),
    )


def _left_out(rows: Sequence[Score], case: str) -> tuple[float, list[Score]]:
    """Fit the upper end without a case; give it with the rows of the case."""
    return (
        ends_of([row for row in rows if row.case != case]).high,
        [row for row in rows if row.case == case],
    )


def _percent(found: Sequence[bool]) -> float:
    return 100 * sum(found) / len(found)


def write() -> None:
    """Write the ends and the measured rows that ship with the package."""
    dump("spreads.json", "spreads", spreads())
    dump("rows.json", "rows", evidence())


def spreads() -> list[dict[str, Any]]:
    """Fit the ends of every kind to all of its cases."""
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    return [_spread(*key, rows, date) for key, rows in sorted(pooled().items())]


def _spread(profile: str, kind: str, rows: Sequence[Score], date: str) -> dict[str, Any]:
    ends, own = shipped_ends(profile, kind), scores()[profile, kind]
    return {
        "profile": profile,
        "kind": kind,
        "own_cases": len({row.case for row in own}),
        "most_ranks": max(row.ranks for row in own),
        "low_permille": -int(-1000 * ends.low // 1),
        "high_permille": -int(-1000 * ends.high // 1),
        "cases": len({row.case for row in rows}),
        "rows": len(rows),
        "date": date,
    }


def evidence() -> list[dict[str, Any]]:
    """One row for each setting: the one with the middle measurement."""
    by_setting: dict[str, list[dict[str, Any]]] = {}
    for answered in fitted_to():
        row = _evidence_row(answered)
        key = json.dumps([row["profile"], row["settings"]], sort_keys=True)
        by_setting.setdefault(key, []).append(row)
    rows = [
        sorted(found, key=lambda each: each["measured_bytes"])[len(found) // 2]
        for found in by_setting.values()
    ]
    return sorted(rows, key=lambda each: each["id"])


def _evidence_row(answered: Answered) -> dict[str, Any]:
    row, run = answered.row, described(answered.request)
    source, measured = _described(row)
    return {
        "id": row["id"],
        "source": source,
        "profile": run.profile.name,
        "measured": measured,
        "measured_bytes": measured_bytes(answered),
        "estimated_bytes": _expected(answered).expected_bytes,
        "settings": dict(run.settings),
    }


def _described(row: Mapping[str, Any]) -> tuple[str, str]:
    """Say where a row stands, and what was measured."""
    if "config" in row:
        return _OWN, "peak allocated"
    if "value_bytes" in row:
        return row["source"], row["quantity"].replace("_", " ")
    return f"NVIDIA/Megatron-LM, functional tests, {row['source']}", "peak allocated, last rank"


_OWN = "measured by this project: NVIDIA H200, torch 2.11.0, transformers 5.17.0, 2026-11-29"


def dump(name: str, key: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one file of package data, a row in each line."""
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    (WRITTEN / name).write_text(f'{{\n "{key}": [\n{lines}\n ]\n}}\n', encoding="utf-8")
