"""How far measured peaks lay from ours, by kernel profile and kind of run: the ends of intervals.

Package data, ``measured/spreads.json``, written by the benchmark of Estimate: for every kind the
ends that held for each case when it was left out, with the cases and rows behind them; a kind of
few cases takes in those of plain runs. A kind without rows has the ends of plain runs, or the
profile's own margin if that is wider, and is called not calibrated; so is a run on several ranks
of a kind that was measured on one only.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from haversack_server.memory.kernel_profile import PACKAGE, KernelProfile, load

PLAIN = "plain"


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


@cache
def calibrated(name: str, kind: str, ranks: int) -> tuple[KernelProfile, str]:
    """Load a profile with the margins of a kind of run; and the sentence that says whence."""
    profile = load(name)
    known = spreads().get((name, kind))
    if known is None:
        return _not_calibrated(profile, f"of the kind {kind!r}", spreads().get((name, PLAIN)))
    if not known.speaks_of(ranks):
        return _not_calibrated(profile, f"of the kind {kind!r} on several ranks", known)
    return _with_ends(profile, known.low_permille, known.high_permille), known.sentence


def _not_calibrated(
    profile: KernelProfile, missing: str, nearest: Spread | None
) -> tuple[KernelProfile, str]:
    """Take the wider of the profile's margin and the ends of the nearest runs that have some."""
    low, high = profile.margin_low_permille, profile.margin_high_permille
    if nearest is not None:
        low, high = max(low, nearest.low_permille), max(high, nearest.high_permille)
    sentence = (
        f"low and high ends: expected - {low / 10:g} % and + {high / 10:g} %, a named margin that "
        f"is not calibrated: no measured rows {missing} under the profile {profile.name}"
    )
    return _with_ends(profile, low, high), sentence


def _with_ends(profile: KernelProfile, low: int, high: int) -> KernelProfile:
    return replace(profile, margin_low_permille=low, margin_high_permille=high)
