"""Sections of a page, each run by itself and kept as a file, and the page put together of them.

The order is that of the sections and never that of their runs, so that the same files give the same
page. Sections of other machines or versions are refused. Knows no figures.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.bench.table import Row, shown

OF_A_RUN = ("load",)
"""What may differ from section to section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One section: its figures, the machine that they are of, how long it took.

    ``missed_before`` has the gates that earlier runs missed whose files this one took the place of.
    """

    section: str
    described: Mapping[str, str]
    seconds: float
    cpu_seconds: float
    rows: tuple[Row, ...]
    missed_before: tuple[str, ...] = ()


def run(section: str, rows: Callable[[], Iterator[Row]], described: Mapping[str, str]) -> Part:
    """Run a section, printing its figures; note its time and the load that it found."""
    described = {**described, "load": f"{os.getloadavg()[0]:.1f}"}
    start, cpu_start = time.monotonic(), time.process_time()
    found = tuple(shown(rows()))
    return Part(
        section=section,
        described=described,
        seconds=time.monotonic() - start,
        cpu_seconds=time.process_time() - cpu_start,
        rows=found,
    )


def keep(folder: Path, part: Part) -> None:
    """Write a section to its file; what an earlier run missed is not lost by that."""
    folder.mkdir(parents=True, exist_ok=True)
    if _file(folder, part.section).exists():
        earlier = _read(_file(folder, part.section))
        missed = [f"{r.what}: {r.value:.2f} {r.unit}" for r in earlier.rows if r.reached is False]
        part = replace(part, missed_before=(*earlier.missed_before, *missed))
    written = {**asdict(part), "rows": [row._asdict() for row in part.rows]}
    _file(folder, part.section).write_text(json.dumps(written, indent=1) + "\n")


def kept(folder: Path, sections: Sequence[str]) -> list[Part]:
    """Read sections back; raises ``SystemExit`` with those that were never kept."""
    missing = [section for section in sections if not _file(folder, section).exists()]
    if missing:
        raise SystemExit(f"{folder} has no {', '.join(missing)}: run them with --parts {folder}")
    return [_read(_file(folder, section)) for section in sections]


def _file(folder: Path, section: str) -> Path:
    return folder / f"{section}.json"


def _read(path: Path) -> Part:
    found = json.loads(path.read_text())
    rows = tuple(Row(**row) for row in found["rows"])
    return Part(**{**found, "rows": rows, "missed_before": tuple(found["missed_before"])})


def said(parts: Sequence[Part]) -> tuple[str, ...]:
    """Say that sections ran apart, and what runs missed that were done again."""
    missed = [f"{part.section}, {each}" for part in parts for each in part.missed_before]
    again = [f"Missed by a run whose section was then run again: {each}." for each in missed]
    return ("Sections ran apart and were merged; loads and times are those of each.", *again, "")


def machine_of(parts: Sequence[Part]) -> dict[str, str]:
    """Describe the machine of all parts, with each one's load and time.

    Raises ``SystemExit`` where they are of several machines or versions.
    """
    machines = [_without_run(part.described) for part in parts]
    for part, found in zip(parts, machines, strict=True):
        if found != machines[0]:
            raise SystemExit(f"{part.section} ran on another machine than {parts[0].section}")
    loads = ", ".join(f"{part.section} {part.described['load']}" for part in parts)
    seconds = ", ".join(
        f"{part.section} {part.seconds:.0f} ({part.cpu_seconds:.0f})" for part in parts
    )
    return {**machines[0], "load before": loads, "seconds (of CPU)": seconds}


def _without_run(described: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in described.items() if name not in OF_A_RUN}
