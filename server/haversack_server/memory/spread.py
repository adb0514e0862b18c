"""How far measured peaks lay from ours, by kernel profile and kind of run: the ends of intervals.

Package data, ``measured/spreads.json``, written by the benchmark of Estimate: for every kind the
ends that held for each case when it was left out, with the cases and rows behind them; a kind of
few cases takes in those of plain runs. A kind without rows has the ends of plain runs, or the
profile's own margin if that is wider, and is called not calibrated; so is a run on several ranks
of a kind that was measured on one only. A run with a setting that no measured run of its profile
has (``validated.py``) is never nearer than the profile's own margin. A run may be of several kinds:
where few cases stand behind the ends of the first, they are no nearer than those of the others.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from haversack_server.memory.kernel_profile import PACKAGE, KernelProfile, load

PLAIN = "plain"
ENOUGH = 3  # cases of its own, for the ends of a kind to stand alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Both ends beside the expected bytes, in per mille of them, and what they stand on."""

    profile: str
    kind: str
    low_permille: int
    high_permille: int
    own_cases: int
    most_ranks: int
    cases: int
    rows: int
    date: str

    @property
    def sentence(self) -> str:
        """Say what the ends are and where they come from."""
        low, high = self.low_permille / 10, self.high_permille / 10
        own = "" if self.own_cases == self.cases else f", {self.own_cases} of them of this kind"
        return (
            f"low and high ends: expected - {low:g} % and + {high:g} %, fitted to {self.cases} "
            f"measured cases{own} ({self.rows} rows, {self.date}), each judged when left out; kind "
            f"of run: {self.kind}, measured on up to {self.most_ranks} ranks"
        )

    def speaks_of(self, ranks: int) -> bool:
        """Tell whether it may be said of so many ranks: one rank is no evidence of several."""
        return ranks == 1 or self.most_ranks > 1


@cache
def spreads() -> Mapping[tuple[str, str], Spread]:
    """Read every spread, by profile and kind."""
    text = (files(PACKAGE) / "measured" / "spreads.json").read_text(encoding="utf-8")
    found = [Spread(**row) for row in json.loads(text)["spreads"]]
    return {(each.profile, each.kind): each for each in found}


class _Ends(NamedTuple):
    """Both ends in per mille of the expected bytes, and what they stand on."""

    low: int
    high: int
    sentence: str


@cache
def calibrated(
    name: str, kinds: tuple[str, ...], ranks: int, *, validated: bool = True
) -> tuple[KernelProfile, str]:
    """Load a profile with the margins of a run, whose kinds are given with the one that decides
    most first; and the sentence that says whence. ``validated``: measured runs have its settings.
    """
    profile = load(name)
    ends = _ends(profile, kinds, ranks)
    return _with_ends(profile, ends if validated else _outside(ends, profile))


def _ends(profile: KernelProfile, kinds: Sequence[str], ranks: int) -> _Ends:
    """Find the ends of a run by its kinds."""
    name, kind = profile.name, kinds[0]
    known = spreads().get((name, kind))
    if known is None:
        plain = spreads().get((name, PLAIN))
        ends = _not_calibrated(profile, f"of the kind {kind!r}", plain)
    elif not known.speaks_of(ranks):
        ends = _not_calibrated(profile, f"of the kind {kind!r} on several ranks", known)
    else:
        ends = _Ends(known.low_permille, known.high_permille, known.sentence)
        if known.own_cases >= ENOUGH:
            return ends
    return _no_nearer(ends, profile, kinds[1:])


def _outside(ends: _Ends, profile: KernelProfile) -> _Ends:
    """Widen ends to the profile's margin, for a run outside the settings that were measured."""
    low = max(ends.low, profile.margin_low_permille)
    high = max(ends.high, profile.margin_high_permille)
    if (low, high) == (ends.low, ends.high):
        return ends
    why = "with settings that are not validated, so"
    return _Ends(low, high, f"{ends.sentence}; {why} - {low / 10:g} % and + {high / 10:g} %")


def _no_nearer(ends: _Ends, profile: KernelProfile, kinds: Sequence[str]) -> _Ends:
    """Widen ends to those of other kinds that a run is of, or the margin of one without rows."""
    for kind in kinds:
        known = spreads().get((profile.name, kind))
        low, high = profile.margin_low_permille, profile.margin_high_permille
        if known is not None:
            low, high = known.low_permille, known.high_permille
        low, high = max(ends.low, low), max(ends.high, high)
        if (low, high) != (ends.low, ends.high):
            whose = f"also of the kind {kind!r}" + (
                "" if known else ", which has no measured rows of its own"
            )
            sentence = f"{ends.sentence}; {whose}, so - {low / 10:g} % and + {high / 10:g} %"
            ends = _Ends(low, high, sentence)
    return ends


def _not_calibrated(profile: KernelProfile, missing: str, nearest: Spread | None) -> _Ends:
    """Take the wider of the profile's margin and the ends of the nearest runs that have some."""
    low, high = profile.margin_low_permille, profile.margin_high_permille
    if nearest is not None:
        low, high = max(low, nearest.low_permille), max(high, nearest.high_permille)
    sentence = (
        f"low and high ends: expected - {low / 10:g} % and + {high / 10:g} %, a named margin that "
        f"is not calibrated: no measured rows {missing} under the profile {profile.name}"
    )
    return _Ends(low, high, sentence)


def _with_ends(profile: KernelProfile, ends: _Ends) -> tuple[KernelProfile, str]:
    made = replace(profile, margin_low_permille=ends.low, margin_high_permille=ends.high)
    return made, ends.sentence
