"""The peak of a changed run, and nothing else of it: what searches, advice and variations ask for.

A change that is not open to the run (a tp that divides no heads, an axis that is not modelled) has
no peak.
"""

from collections.abc import Callable
from dataclasses import dataclass

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.estimate import EstimateRequest, Peak
from haversack.run import Interval
from haversack_server.estimate.rank_peaks import over_all, rank_peaks
from haversack_server.estimate.verdict import Limit
from haversack_server.memory.bounds import check_bounds
from haversack_server.memory.model_run import ModelRun, model_run
from haversack_server.memory.unmodelled import unmodelled


@dataclass(frozen=True, slots=True)
class RunPeak:
    """A run with the peak of its fullest ranks."""

    run: ModelRun
    peak: Peak


def run_peak(request: EstimateRequest) -> RunPeak | None:
    """Find the peak of a run of a described model; None if the run is not open."""
    try:
        run = model_run(request, chosen_only=True)
        if unmodelled(request, run.degrees):
            return None
        check_bounds(run.chain)
        peak = over_all(rank_peaks(request, run))
    except (InvalidRequestError, NotSupportedError):
        return None
    return RunPeak(run, peak)


def expected_bytes(request: EstimateRequest) -> int | None:
    """Find the expected allocated bytes of a run."""
    found = run_peak(request)
    return None if found is None else found.peak.allocated.expected_bytes


def limited_by(limit: Limit) -> Callable[[Peak], Interval]:
    """Give the function that picks the bytes which a limit is about."""
    return lambda peak: peak.device if limit.of_device else peak.allocated


def fits(request: EstimateRequest, limit: Limit) -> bool:
    """Tell whether the high end of a run's peak is within a limit."""
    found = run_peak(request)
    if found is None:
        return False
    return limited_by(limit)(found.peak).high_bytes <= limit.limit_bytes
