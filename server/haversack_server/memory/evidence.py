"""The measured runs that ship with the package, and which of them are nearest to a run.

Package data, ``measured/rows.json``: one row for each measured setting, with its source, and what
this version expects for it. Nearness is by settings, not by bytes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import log2

from haversack.evidence import Evidence
from haversack_server.memory.kernel_profile import PACKAGE

NEAREST = 3
# A setting in words that differs weighs as much as a number that differs four times.
OF_WORDS = 2.0
# The setting that says whether all weights train. A run with frozen ones is no evidence for a run
# without: it has hardly any gradients and optimizer state.
TRAINED = "trained weights"
Settings = Mapping[str, int | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One measured run: settings, and bytes measured and expected."""

    id: str
    source: str
    profile: str
    measured: str
    measured_bytes: int
    estimated_bytes: int
    settings: Settings


@cache
def measured_runs(profile: str) -> tuple[MeasuredRun, ...]:
    """Read the measured runs under a kernel profile."""
    text = (files(PACKAGE) / "measured" / "rows.json").read_text(encoding="utf-8")
    rows = [MeasuredRun(**row) for row in json.loads(text)["rows"]]
    return tuple(row for row in rows if row.profile == profile)


def nearest(profile: str, settings: Settings, most: int = NEAREST) -> tuple[Evidence, ...]:
    """Find the measured runs whose settings are nearest, the nearest first."""
    trained = settings.get(TRAINED)
    alike = [run for run in measured_runs(profile) if run.settings.get(TRAINED) == trained]
    runs = sorted(alike, key=lambda run: _distance(run.settings, settings))
    return tuple(_evidence(run, settings) for run in runs[:most])


def _distance(there: Settings, here: Settings) -> float:
    return sum(_apart(there.get(name), value) for name, value in here.items())


def _apart(there: int | str | None, here: int | str) -> float:
    if there == here:
        return 0.0
    if isinstance(there, int) and isinstance(here, int):
        return abs(log2(max(there, 1) / max(here, 1)))
    return OF_WORDS


def _evidence(run: MeasuredRun, here: Settings) -> Evidence:
    differences = [
        f"{name} {run.settings.get(name, 'not stated')} instead of {value}"
        for name, value in here.items()
        if run.settings.get(name) != value
    ]
    return Evidence(
        id=run.id,
        source=run.source,
        measured=run.measured,
        measured_bytes=run.measured_bytes,
        estimated_bytes=run.estimated_bytes,
        distance=f"there {', '.join(differences)}" if differences else "the same settings",
    )
