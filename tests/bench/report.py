"""A run of a benchmark: its options, what it prints, and the committed page.

The page has the machine, what was missed, and a table per section.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from tests.bench import machine
from tests.bench.table import Row, shown

Sections = Mapping[str, Callable[[], Iterator[Row]]]


def options(about: str | None, sections: Sections | None = None) -> argparse.ArgumentParser:
    """Return what every benchmark understands: a page to write; of ``sections``, which and how."""
    parser = argparse.ArgumentParser(description=about)
    if sections is not None:
        parser.add_argument("--json", action="store_true", help="print one JSON object instead")
        parser.add_argument("--only", nargs="+", choices=sections, default=list(sections))
    parser.add_argument("--write", type=Path, help="also write the run as a page")
    return parser


def figures(sections: Sections, names: Iterable[str]) -> Iterator[Row]:
    """Go through the sections one after the other."""
    for name in names:
        yield from sections[name]()


def told(described: dict[str, str], rows: Iterable[Row], *, as_json: bool) -> list[Row]:
    """Print the machine and every figure, as a table or as one JSON object; return the figures."""
    if not as_json:
        print(machine.heading(described))
        return shown(rows)
    collected = list(rows)
    report = {"machine": described, "figures": [row._asdict() for row in collected]}
    print(json.dumps(report, indent=2))
    return collected


def as_markdown(
    title: str, intro: Sequence[str], described: Mapping[str, str], rows: Sequence[Row]
) -> str:
    """Return the page; ``intro`` says how the figures were made."""
    missed = [row for row in rows if row.reached is False]
    gated = [row for row in rows if row.reached is not None]
    lines = [
        f"# {title}",
        "",
        *intro,
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
