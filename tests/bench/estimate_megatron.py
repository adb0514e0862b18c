"""Megatron-LM's golden values: steady and peak bytes of the last rank, case by case.

Rows of one case are near-duplicates, so a case counts once, with the median of its rows. What is
claimed was listed before anything was fitted (``claims.json``).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from statistics import median
from typing import Any

from tests.bench.estimate_rows import (
    ESTIMATE,
    Answered,
    Error,
    answer,
    by_case,
    megatron,
    megatron_request,
    peak,
    public_arguments,
    steady,
)
from tests.bench.table import Row, at_most

MIB = 2**20
DENSE = ("dense", "dense-large", "dense-recompute", "dense-vpp")
OTHERS = ("moe", "moe-mla", "dense-cp", "fsdp", "t5", "bert")
REPORTED = ("dense-fp8", "muon", "hybrid", "moe-release", "nemotron", "rl", "vlm")


@cache
def claims() -> Mapping[str, Any]:
    """Read what is claimed, what is not, and what the recorded arguments hide."""
    found: Mapping[str, Any] = json.loads((ESTIMATE / "claims.json").read_text())
    return found


def is_claimed(row: Mapping[str, Any]) -> bool:
    """Tell whether all arguments of a run are claimed, and none that decides is hidden."""
    arguments = row["args"]
    inside = all(
        arguments.get(name) in setting["values"] or _default(arguments, name) in setting["values"]
        for name, setting in claims()["claimed"].items()
    )
    outside = any(arguments.get(name) for name in claims()["not_claimed"])
    left_out = outside or is_hidden(row) or "doubtful" in row
    return row["class"] in DENSE and inside and not left_out


def _default(arguments: Mapping[str, Any], name: str) -> object:
    return 1 if name.endswith("-size") and name not in arguments else arguments.get(name)


def claimed() -> Iterator[Row]:
    """Steady and peak bytes of the claimed cases."""
    chosen = [each for each in megatron() if is_claimed(each.row)]
    yield from dense_figures("dense, claimed", chosen)


def dense_figures(section: str, chosen: list[Answered]) -> Iterator[Row]:
    """Judge steady and peak bytes of claimed cases by the bounds that are claimed."""
    yield from _figures(section, chosen, "steady", steady, typical=1.0, worst=3.0)
    yield from _figures(section, chosen, "peak", peak, typical=2.5, worst=8.0)


def unclaimed() -> Iterator[Row]:
    """Cases that are not claimed: UNKNOWN, or inside the interval of the answer.

    Options that the recorded arguments hide are among those that the rows are asked with.
    """
    chosen = [
        each for each in megatron() if each.row["class"] in DENSE and not is_claimed(each.row)
    ]
    for case, answers in by_case(iter(chosen)).items():
        known = [each for each in answers if each.known]
        fine = sum(_inside(each) for each in known) + len(answers) - len(known)
        why = "" if known else f" ({_shortly(answers[0])})"
        what = f"{_short(case)}: {len(answers) - len(known)} UNKNOWN{why}, the others inside"
        gate = f"= {len(answers)}"
        yield Row("unclaimed", what, fine, "rows", gate, fine == len(answers))


def is_hidden(row: Mapping[str, Any]) -> bool:
    """Tell whether the option that decides is not among the recorded arguments."""
    return any(part in row["id"] for part in claims()["hidden"])


def others() -> Iterator[Row]:
    """Experts, MLA, context parallelism, FSDP, T5 and BERT: the typical miss, and the worst."""
    chosen = [
        each for each in megatron() if each.row["class"] in OTHERS and "doubtful" not in each.row
    ]
    yield from _figures("moe, mla, cp, fsdp, t5, bert", chosen, "peak", peak, typical=8.0)
    yield from _as_recorded("moe, mla, cp, fsdp, t5, bert", chosen)


def _as_recorded(section: str, chosen: list[Answered]) -> Iterator[Row]:
    """The runs whose arguments were recorded in part, asked with what was recorded alone."""
    for each in chosen:
        if public_arguments(each.row).get("args"):
            alone = answer(each.row, megatron_request(each.row, recorded_only=True))
            what = f"peak {_short(each.case)}, as recorded"
            if alone.known:
                yield Row(section, what, 100 * abs(peak(alone).share), "%")
            else:
                yield Row(section, f"{what}: no figure ({_shortly(alone)})", 0, "")


def reported() -> Iterator[Row]:
    """Everything else, and rows that are doubtful, without a gate."""
    chosen = [
        each
        for each in megatron()
        if each.row["class"] in REPORTED or (each.row["class"] in OTHERS and "doubtful" in each.row)
    ]
    yield from _figures("others", chosen, "peak", peak)


def _figures(
    section: str,
    chosen: list[Answered],
    kind: str,
    compare: Callable[[Answered], Error],
    typical: float | None = None,
    worst: float | None = None,
) -> Iterator[Row]:
    """One figure for each case, then their median and the worst."""
    found: dict[str, float] = {}
    slack: dict[str, float] = {}
    for case, answers in by_case(iter(chosen)).items():
        known = [compare(each) for each in answers if each.known and f"{kind}_bytes" in each.row]
        if not known:
            yield Row(section, f"{_short(case)}: no figure ({_shortly(answers[0])})", 0, "")
            continue
        shares = [100 * error.share for error in known]
        found[case] = median(abs(share) for share in shares)
        slack[case] = median(abs(error.ours - error.measured) for error in known) / MIB
        spread = f"{min(shares):+.1f} to {max(shares):+.1f} %"
        reason = _reason(case)
        what = (
            f"{kind} {_short(case)} ({len(known)} rows, {spread}, {slack[case]:,.0f} MiB{reason})"
        )
        yield Row(section, what, found[case], "%", *_worst(found[case], slack[case], kind, worst))
    if found and typical is not None:
        what = f"{kind}: median of {len(found)} cases"
        yield at_most(section, what, median(found.values()), typical, "%")


def _worst(
    miss: float, slack_mib: float, kind: str, worst: float | None
) -> tuple[str, bool | None]:
    if worst is None:
        return "", None
    # A framework constant is a large share of a small run: 64 MiB are allowed to steady bytes.
    return f"<= {worst:g}", miss <= worst or (kind == "steady" and slack_mib <= 64)


def _inside(answered: Answered) -> bool:
    assert answered.estimate is not None
    last = answered.estimate.ranks[-1].peak
    assert last is not None
    found = last.allocated
    measured: int = answered.row["peak_bytes"]
    return found.low_bytes <= measured <= found.high_bytes


def _reason(case: str) -> str:
    """Why a case is missed, where that was looked for."""
    found: str = claims()["misses"].get(case.rpartition("/")[2], "")
    return f"; {found}" if found else ""


def _shortly(answered: Answered) -> str:
    return answered.why_not.removeprefix("run.args: ")[:90]


def _short(case: str) -> str:
    return case.removeprefix("megatron/")
