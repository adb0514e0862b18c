"""A run of a benchmark as a committed page: the machine, what was missed, a table per section."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby

from tests.bench.table import Row


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
