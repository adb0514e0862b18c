"""The peak of a changed run, and nothing else of it: what searches, advice and variations ask for.

A change that is not open to the run (a tp that divides no heads, an axis that is not modelled) has
no peak. Searches and advice come to the same runs, so what was found is kept for the request.
"""

from collections.abc import Callable
from dataclasses import dataclass

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.estimate import EstimateRequest, Peak
from haversack.parallelism import Parallelism
from haversack.run import Interval, Training
from haversack_server.estimate.rank_peaks import highest_peak
from haversack_server.estimate.verdict import Limit
from haversack_server.memory.bounds import check_bounds
from haversack_server.memory.model_run import ModelRun, model_run
from haversack_server.memory.unmodelled import unmodelled


@dataclass(frozen=True, slots=True)
class RunPeak:
    """A run with the peak of its fullest ranks."""

    run: ModelRun
    peak: Peak

    @property
    def expected_bytes(self) -> int:
        """The expected allocated bytes."""
        return self.peak.allocated.expected_bytes


def run_peak(request: EstimateRequest) -> RunPeak | None:
    """Find the peak of a run of a described model; None if the run is not open."""
    try:
        run = model_run(request, chosen_only=True)
        if unmodelled(request, run.degrees):
            return None
        check_bounds(run.chain)
        peak = highest_peak(request, run)
    except (InvalidRequestError, NotSupportedError):
        return None
    return RunPeak(run, peak)


class Peaks:
    """The peaks of runs that differ from a request in training or parallelism; each found once."""

    def __init__(self, request: EstimateRequest, base: RunPeak) -> None:
        self.base = base
        self._known: dict[_Key, RunPeak | None] = {_key(request): base}

    def of(self, request: EstimateRequest) -> RunPeak | None:
        """Find the peak of a run; None if the run is not open."""
        key = _key(request)
        if key not in self._known:
            self._known[key] = run_peak(request)
        return self._known[key]

    def fits(self, request: EstimateRequest, limit: Limit) -> bool:
        """Tell whether the high end of a run's peak is within a limit."""
        found = self.of(request)
        if found is None:
            return False
        return limited_by(limit)(found.peak).high_bytes <= limit.limit_bytes


_Key = tuple[Training, Parallelism]


def _key(request: EstimateRequest) -> _Key:
    return request.training, request.parallelism


def limited_by(limit: Limit) -> Callable[[Peak], Interval]:
    """Give the function that picks the bytes which a limit is about."""
    return lambda peak: peak.device if limit.of_device else peak.allocated
