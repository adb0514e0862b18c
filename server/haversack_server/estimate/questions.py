"""The answers to what a request asks of a described model beside its ledger.

Knows which answer belongs to which question; how each is found is for its own file.
"""

from dataclasses import replace

from haversack.estimate import Estimate, EstimateRequest
from haversack.questions import EstimateQuestion
from haversack_server.estimate.advice import advice
from haversack_server.estimate.asked import asked
from haversack_server.estimate.collectives import collectives, recompute_ns
from haversack_server.estimate.fitting import RATES, fitting_changes
from haversack_server.estimate.measured import compared
from haversack_server.estimate.oom import explain
from haversack_server.estimate.peaks import Peaks, RunPeak
from haversack_server.estimate.searches import (
    MOST_GPUS,
    MOST_MICROBATCH,
    fewest_gpus,
    largest_microbatch,
    longest_seq,
    most_seq,
)
from haversack_server.estimate.verdict import Limit, limit_of
from haversack_server.memory.stopping import Stop

NO_LIMIT = "nothing was searched: give the device's memory or a budget"


def answered(answer: Estimate, request: EstimateRequest, base: RunPeak, stop: Stop) -> Estimate:
    """Add to the answer of a described model what its request asks beside."""
    questions, peaks = asked(request), Peaks(request, base)
    answer = compared(answer, request, base)
    if request.oom is not None:
        usable = request.device.memory_bytes
        answer = replace(answer, oom=explain(request.oom, base.run, base.peak, usable))
    if EstimateQuestion.ADVICE in questions:
        answer = replace(answer, advice=advice(request, peaks, stop))
    if EstimateQuestion.COLLECTIVES in questions:
        answer = replace(
            answer,
            collectives=collectives(base.run, request.training),
            recompute_ns=recompute_ns(base.run, request.training),
        )
    limit = limit_of(request)
    if limit is not None:
        return _searched(answer, request, peaks, limit, stop)
    searched = request.questions and questions & _SEARCHES
    return replace(answer, searches=(NO_LIMIT,)) if searched else answer


_SEARCHES = {
    EstimateQuestion.MIN_GPUS,
    EstimateQuestion.MAX_MICROBATCH,
    EstimateQuestion.MAX_SEQ,
    EstimateQuestion.CHEAPEST_CHANGE,
}


def _searched(
    answer: Estimate, request: EstimateRequest, peaks: Peaks, limit: Limit, stop: Stop
) -> Estimate:
    """Answer the searches under a limit, and say how far each went."""
    questions, architecture = asked(request), peaks.base.run.architecture
    searches: list[str] = []
    if EstimateQuestion.MIN_GPUS in questions:
        answer = replace(answer, min_gpus=fewest_gpus(request, peaks, limit, stop))
        searches.append(f"fewest GPUs: to {MOST_GPUS:,}, the microbatch of each rank unchanged")
    if EstimateQuestion.MAX_MICROBATCH in questions:
        answer = replace(answer, max_microbatch=largest_microbatch(request, peaks, limit, stop))
        searches.append(f"largest microbatch: to {MOST_MICROBATCH:,} sequences")
    if EstimateQuestion.MAX_SEQ in questions:
        most = most_seq(architecture)
        answer = replace(answer, max_seq=longest_seq(request, peaks, most, limit, stop))
        searches.append(f"longest sequence: to {most:,} tokens")
    if EstimateQuestion.CHEAPEST_CHANGE in questions:
        changes = fitting_changes(request, peaks, limit, stop)
        answer = replace(answer, fitting_changes=changes)
        searches.append(RATES)
    return replace(answer, searches=tuple(searches))
