"""The peak of every class of equal ranks, with its margin; the run's is the highest of each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from haversack.estimate import Peak, RankClass
from haversack.run import Attention, Interval, TrainingRun
from haversack_server.memory.bounds import check_peak
from haversack_server.memory.chain import Chain
from haversack_server.memory.experts_parallel import worst_load_permille
from haversack_server.memory.margins import peak_of
from haversack_server.memory.model_run import ModelRun, model_run
from haversack_server.memory.ranks import RankLine


@dataclass(frozen=True, slots=True)
class RankPeak:
    """A class of equal ranks with its peak."""

    ranks: RankLine
    peak: Peak

    def described(self) -> RankClass:
        """Write the class for an answer."""
        moment = self.ranks.line.peak
        return RankClass(
            name=self.ranks.name,
            first_rank=self.ranks.first_rank,
            rank_count=self.ranks.rank_count,
            steady_bytes=self.ranks.chain.states.steady_bytes,
            peak=self.peak,
            peak_phase=moment.phase,
            peak_moment=moment.name,
            between_steps_bytes=self.ranks.between_steps_bytes,
            host_bytes=self.ranks.host_bytes,
        )


def rank_peaks(request: TrainingRun, run: ModelRun, *, whole: bool = False) -> tuple[RankPeak, ...]:
    """Find the peak of every class; the high end is that of the worst of what is not known.

    If ``whole``, their timelines have every moment, else the highest of each phase.
    """
    found = _peaks(request, run, whole=whole)
    worst = _worst(request, run)
    if worst is request:
        return found
    others = _peaks(worst, model_run(worst, chosen_only=True), whole=False)
    return tuple(
        RankPeak(one.ranks, _spanned(one.peak, other.peak))
        for one, other in zip(found, others, strict=True)
    )


def highest_peak(request: TrainingRun, run: ModelRun) -> Peak:
    """Find the peak of a run alone, as searches ask for it: where ranks are equal, no moments."""
    height = run.only_height(request.training) if _worst(request, run) is request else None
    if height is None:
        return over_all(rank_peaks(request, run))
    check_peak(height)
    return _peak_of(height, run.stages[0], run)


def _worst(request: TrainingRun, run: ModelRun) -> TrainingRun:
    """Take attention that keeps the most where the kernel is not known, and the fullest experts."""
    training, parallelism = request.training, request.parallelism
    if training.attention is Attention.UNKNOWN and run.degrees.cp == 1:
        training = replace(training, attention=Attention.EAGER)
    stated = parallelism.expert_load_permille or parallelism.expert_capacity_permille
    if run.architecture.experts and run.degrees.ep > 1 and not stated:
        load = worst_load_permille(run.architecture, run.shape)
        parallelism = replace(parallelism, expert_load_permille=load)
    if training is request.training and parallelism is request.parallelism:
        return request
    return replace(request, training=training, parallelism=parallelism)


def fullest(peaks: Sequence[RankPeak]) -> RankPeak:
    """Give the class with the highest expected peak; the first of equals."""
    return max(peaks, key=lambda each: each.ranks.peak_bytes)


def over_all(peaks: Sequence[RankPeak]) -> Peak:
    """Give the peak of the run: at each end the highest of its classes.

    The fullest class decides what is expected; where something is not known, such as the load of
    experts, another class may have the highest end.
    """
    return Peak(
        allocated=_highest([each.peak.allocated for each in peaks]),
        reserved=_highest([each.peak.reserved for each in peaks]),
        outside=_highest([each.peak.outside for each in peaks]),
        device=_highest([each.peak.device for each in peaks]),
    )


def _peaks(request: TrainingRun, run: ModelRun, *, whole: bool) -> tuple[RankPeak, ...]:
    lines = run.rank_lines(request.training, whole=whole)
    for line in lines:
        check_peak(line.peak_bytes)
    return tuple(RankPeak(line, _peak_of(line.peak_bytes, line.chain, run)) for line in lines)


def _peak_of(height: int, chain: Chain, run: ModelRun) -> Peak:
    loading = chain.loading
    return peak_of(
        height,
        run.profile,
        run.degrees,
        states_bytes=chain.states.steady_bytes,
        reserved_bytes=0 if loading is None else loading.reserved_bytes,
    )


def _spanned(one: Peak, other: Peak) -> Peak:
    """Keep what is expected of one, and let the ends cover both."""
    return Peak(
        allocated=_span(one.allocated, other.allocated),
        reserved=_span(one.reserved, other.reserved),
        outside=one.outside,
        device=_span(one.device, other.device),
    )


def _highest(intervals: Sequence[Interval]) -> Interval:
    return Interval(
        low_bytes=max(each.low_bytes for each in intervals),
        expected_bytes=max(each.expected_bytes for each in intervals),
        high_bytes=max(each.high_bytes for each in intervals),
    )


def _span(one: Interval, other: Interval) -> Interval:
    return Interval(
        low_bytes=min(one.low_bytes, other.low_bytes),
        expected_bytes=one.expected_bytes,
        high_bytes=max(one.high_bytes, other.high_bytes),
    )
