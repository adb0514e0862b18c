"""Our plans beside ``torch.compile``'s ``activation_memory_budget``, each against its own base.

Ours is the step in eager mode without a plan, torch's its own graph at budget 1. Peaks are live
storages of executed steps; extra times are a roofline's, of all operations that ran. Torch's budget
is a part of what would be saved, not of the peak, so ours is compared at the peak that it reached.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.bench.min_cut import Partitioned, eager
from tests.bench.plan_cases import planned
from tests.bench.plan_models import workload_of
from tests.bench.plan_runs import Executed, standing_bytes
from tests.bench.table import Row, at_least, at_most

from haversack.profile import Profile
from haversack.torch import Workload, apply, profile

SHARES = (0.7, 0.5, 0.3)
GATED = 0.5
"""Torch is to be beaten at budgets up to here; above, the difference is only said."""
LOWER = (0.4, 0.2, 0.1)
"""Budgets tried besides, for the least peak that torch reaches at all."""
SECTION = "min-cut"


@dataclass(frozen=True, slots=True)
class Reached:
    """One run against its base: its peak and its extra time, both in %, and its gradients' error.

    The error is the largest over all gradients: the distance from the base's by their length.
    """

    peak: float
    extra: float
    error: float


@dataclass(frozen=True, slots=True)
class Base:
    """The step that others are compared with."""

    executed: Executed
    time_ns: float

    def reached(self, executed: Executed, time_ns: float) -> Reached:
        """Compare a run with it."""
        return Reached(
            peak=100 * executed.tracked_bytes / self.executed.tracked_bytes,
            extra=100 * (time_ns / self.time_ns - 1),
            error=_error(executed, self.executed),
        )


class Ours:
    """A model with its profile and its plain step, to be planned for shares of that one's peak."""

    def __init__(self, workload: Workload) -> None:
        self.base = Base(*eager(workload))
        self.error = 0.0
        self._workload = workload
        self._profile: Profile = profile(workload)
        self._beside_bytes = standing_bytes(workload)

    def at(self, percent: float) -> Reached | None:
        """Plan for a share of the peak and run it; None if no plan has so low a peak."""
        limit_bytes = int(percent / 100 * self.base.executed.tracked_bytes)
        answer = planned(self._profile, limit_bytes + self._beside_bytes)
        if not answer.actions:
            return None
        model: Any = self._workload.model
        with apply(model, answer):
            found = self.base.reached(*eager(self._workload))
        self.error = max(self.error, found.error)
        return found

    def floor(self) -> float:
        """Give the least peak that is predicted for any plan, as a share of the base's in %."""
        floor_bytes = planned(self._profile, 1).floor_bytes - self._beside_bytes
        return 100 * floor_bytes / self.base.executed.tracked_bytes


def rows(name: str) -> Iterator[Row]:
    """Compare on one model: at every budget of ``SHARES``, and wherever torch has a low peak."""
    workload = workload_of(name)
    ours, graph = Ours(workload), Partitioned(workload)
    base = Base(*graph.execute(1.0))
    yield from _bases(name, ours.base, base)
    found = {share: base.reached(*graph.execute(share)) for share in (*SHARES, *LOWER)}
    for share, torchs in found.items():
        if share in SHARES:
            yield from _asked(f"{name}, {share:.0%}", share, torchs, ours)
        if share in SHARES or torchs.peak <= 100 * GATED:
            yield from _same_peak(f"{name}, {share:.0%}", share, torchs, ours)
    least = min(each.peak for each in found.values())
    yield Row(SECTION, f"{name}: least peak of torch's", least, "%")
    yield Row(SECTION, f"{name}: least peak of ours, predicted", ours.floor(), "%")
    wrong = max(each.error for each in found.values())
    yield Row(SECTION, f"{name}: torch's gradients are off by up to", 100 * wrong, "%")
    yield at_most(SECTION, f"{name}: ours are off by up to", 100 * ours.error, 0, "%")


def _bases(name: str, ours: Base, torchs: Base) -> Iterator[Row]:
    peak = torchs.executed.tracked_bytes / ours.executed.tracked_bytes
    yield Row(SECTION, f"{name}: peak of torch's base, of our base", 100 * peak, "%")
    time = torchs.time_ns / ours.time_ns
    yield Row(SECTION, f"{name}: time of torch's base, of our base", 100 * time, "%")


def _asked(what: str, share: float, torchs: Reached, ours: Ours) -> Iterator[Row]:
    """Say what each makes of a budget."""
    yield Row(SECTION, f"{what}: torch reaches {torchs.peak:.0f}%, extra", torchs.extra, "%")
    own = ours.at(100 * share)
    if own is not None:
        yield Row(SECTION, f"{what}: ours reaches {own.peak:.0f}%, extra", own.extra, "%")


def _same_peak(what: str, share: float, torchs: Reached, ours: Ours) -> Iterator[Row]:
    """Compare at the share that torch reached; ours costs infinitely much if it has no plan."""
    own = ours.at(torchs.peak)
    gain = torchs.extra - (own.extra if own is not None else math.inf)
    said = f"{what}: torch's extra - ours, both at {torchs.peak:.0f}%"
    if share <= GATED:
        yield at_least(SECTION, said, gain, 0, "points")
    else:
        yield Row(SECTION, said, gain, "points")


def _error(executed: Executed, base: Executed) -> float:
    pairs = zip(executed.gradients, base.gradients, strict=True)
    return max(float((mine - its).norm() / its.norm()) for mine, its in pairs if its.any())
