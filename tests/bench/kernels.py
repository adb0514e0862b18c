"""The kernels against their peers, the machine and each other: every figure of one run.

    python -m tests.bench.kernels [--json] [--only SECTION ...] [--write docs/benchmarks/kernels.md]

Ratios are medians over interleaved rounds in thread CPU time; lost ones are printed too. Absolute
figures depend on the machine and on who shares it.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from tests.bench import dense, kernels_ceiling, kernels_core, machine
from tests.bench.table import Row, shown

from haversack_kernels.warmup import warm_up

SECTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "anchors": kernels_core.anchors,
    "hard": kernels_core.hard,
    "core-peers": kernels_core.peers,
    "bytes": kernels_core.in_bytes,
    "slots": kernels_ceiling.dense_slots,
    "lists": kernels_ceiling.lists,
    "cp-sat": kernels_ceiling.against_cp_sat,
    "budgets": kernels_ceiling.budgets,
    "in-flight": kernels_ceiling.in_flight,
    **{f"dense-{name}": section for name, section in dense.SECTIONS.items()},
}


def figures(sections: list[str]) -> Iterator[Row]:
    """Measure the sections one after the other."""
    warm_up()
    for section in sections:
        yield from SECTIONS[section]()


def as_markdown(described: dict[str, str], rows: list[Row]) -> str:
    """Return the run as a page: the machine, what was missed, and a table per section."""
    missed = [row for row in rows if row.reached is False]
    gated = [row for row in rows if row.reached is not None]
    lines = [
        "# Kernels: figures of one run",
        "",
        "By `python -m tests.bench.kernels --write docs/benchmarks/kernels.md`, unedited.",
        "Ratios are medians over interleaved rounds in thread CPU time. 1 ppm is 1e-6, 1 ppb 1e-9.",
        "",
        f"{len(gated) - len(missed)} of {len(gated)} gates were reached.",
        *(f"Missed: {row.what}: {row.value:.2f} {row.unit}, {row.gate}." for row in missed),
        "",
        "| machine | |",
        "|---|---|",
        f"| date | {datetime.now(UTC):%Y-%m-%d} |",
        *(f"| {name} | {value} |" for name, value in described.items()),
    ]
    for section, group in groupby(rows, key=lambda row: row.section):
        lines += ["", f"## {section}", "| figure | | gate |", "|---|---:|---|"]
        lines += [_line(row) for row in group]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    verdict = {None: "", True: "reached", False: "**missed**"}[row.reached]
    return f"| {row.what} | {row.value:,.2f} {row.unit} | {f'{row.gate} {verdict}'.strip()} |"


def main() -> None:
    """Print the machine and every figure, as a table or as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--write", type=Path, help="also write the run as a page")
    asked = parser.parse_args()
    described = machine.describe()
    if asked.json:
        rows = list(figures(asked.only))
        report = {"machine": described, "figures": [row._asdict() for row in rows]}
        print(json.dumps(report, indent=2))
    else:
        print(machine.heading(described))
        rows = shown(figures(asked.only))
    if asked.write:
        asked.write.write_text(as_markdown(described, rows))


if __name__ == "__main__":
    main()
