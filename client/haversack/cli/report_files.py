"""Files that an answer is written to beside the page: of plans and profiles, and for CI."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from haversack.cli import options
from haversack.cli.calls import json_of
from haversack.reading import refuse, shown

if TYPE_CHECKING:
    from haversack.verify import VerifyReport

FILES = [
    options.option(
        "Answer",
        "--junit",
        field="junit",
        about="File for the report as JUnit XML: a testcase for the verdict and one a facet. "
        "Without it none is written.",
        metavar="FILE",
    ),
    options.option(
        "Answer",
        "--json-file",
        field="json_file",
        about="File for the report as JSON, beside what is printed. Without it none is written.",
        metavar="FILE",
    ),
]


def check_files(junit: str | None, json_file: str | None) -> None:
    """Refuse a file that cannot be written, before a job runs for it."""
    check_file(junit, "junit")
    check_file(json_file, "json_file")


def check_file(path: str | None, field: str) -> None:
    """Refuse a file that cannot be written, before anything is done for it."""
    if path is None:
        return
    if not path:
        refuse("the path is empty; give a file in a folder of yours", field)
    there = Path(path)
    if there.is_dir() or not os.access(there if there.exists() else there.parent, os.W_OK):
        refuse(f"{shown(path)} cannot be written; give a file in a folder of yours", field)


def write_files(report: "VerifyReport", junit: str | None, json_file: str | None) -> None:
    """Write the files that were asked for."""
    if json_file is not None:
        _write(json_file, json_of(report), "json_file")
    if junit is not None:
        from haversack.cli.junit import junit_of

        _write(junit, junit_of(report), "junit")


def _write(path: str, text: str, field: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8", errors="replace")
    except OSError as wrong:
        reason = (wrong.strerror or type(wrong).__name__).lower()
        refuse(f"{shown(path)}: {reason}; give a file that can be written", field)
