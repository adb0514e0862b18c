"""Measured figures beside the expected ones, and the peak scaled to them.

A measurement that cannot be of this run is refused: a phase that it has not, a rank that it has
not, fewer bytes than the model states that are there all the time, more than the device has, or two
figures for one place. Knows nothing of other runs: what is learned here is for this request alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from haversack.basis import Basis
from haversack.errors import Violation, check
from haversack.estimate import Calibration, Estimate, EstimateRequest, Peak
from haversack.questions import MeasuredBytes, Residual, ResidualPosition
from haversack.run import Interval, Measurement
from haversack.units import format_bytes
from haversack_server.estimate.peaks import RunPeak
from haversack_server.estimate.rank_peaks import RankPeak, fullest, rank_peaks
from haversack_server.estimate.verdict import judge, limit_of
from haversack_server.memory.margins import peak_of

# What is left around a peak that was read off the allocator: nothing is known of other steps and
# batches. A named margin, not calibrated.
MEASURED_MARGIN_PERMILLE = 10
MILLION = 1_000_000


def compared(answer: Estimate, request: EstimateRequest, base: RunPeak) -> Estimate:
    """Add residuals and the calibrated peak to the answer of a described model."""
    if not request.measurements:
        return answer
    places = _Places(request, base)
    check([*_impossible(request, places)])
    residuals = tuple(_residuals(request, places))
    calibration = _calibration(answer, request, base, places.at_peak(residuals), residuals)
    rates = tuple(
        f"measurements[{place}].tokens_per_s: rates are not estimated"
        for place, each in enumerate(request.measurements)
        if each.tokens_per_s is not None
    )
    return replace(
        answer,
        residuals=residuals,
        calibration=calibration,
        ignored_inputs=answer.ignored_inputs + rates,
    )


class _Places:
    """What is expected where: the phases and the peak of the class that a rank belongs to."""

    def __init__(self, request: EstimateRequest, base: RunPeak) -> None:
        self.run = base.run
        self.world_size = base.run.degrees.world_size
        self._classes = rank_peaks(request, base.run)
        self._fullest = fullest(self._classes)

    def of(self, rank: int) -> RankPeak:
        """Give the class of a rank; ranks of a pipeline are numbered stage by stage."""
        stage = rank * self.run.degrees.pp // self.world_size
        return next((each for each in self._classes if stage in each.ranks.stages), self._fullest)

    def phases(self, rank: int) -> dict[str, int]:
        """Give the highest expected bytes of each phase on a rank."""
        moments = self.of(rank).ranks.line.by_phase()
        return {name: moment.allocated_bytes for name, moment in moments.items()}

    def at_peak(self, residuals: Sequence[Residual]) -> list[Residual]:
        """Leave the figures of the peak itself: of its phase, on the fullest ranks."""
        names = ("", self._fullest.ranks.line.peak.phase)
        return [
            each
            for each in residuals
            if each.phase in names and self.of(each.rank) is self._fullest
        ]


def _impossible(request: EstimateRequest, places: _Places) -> Iterator[Violation]:
    """Find what cannot have been measured in this run."""
    ranks = places.world_size
    seen: dict[tuple[str, int, str], int] = {}
    for place, each in enumerate(request.measurements):
        path = f"measurements[{place}]"
        phases = places.phases(each.rank)
        if each.phase and each.phase not in phases:
            known = ", ".join(phases)
            sentence = (
                f"{each.phase[:60]!r} is no phase of this run; it has {known}, or leave it out"
            )
            yield Violation(f"{path}.phase", sentence)
        if each.rank >= ranks:
            sentence = f"{each.rank} is no rank of this run, whose last is {ranks - 1}"
            yield Violation(f"{path}.rank", sentence)
        for name in ("allocated_bytes", "reserved_bytes"):
            figure = getattr(each, name)
            if figure is not None:
                always = phases.get("init", 0)
                yield from _out_of_range(f"{path}.{name}", figure, always, request)
                yield from _contradicted(path, name, each, figure, seen)


def _out_of_range(
    path: str, figure: int, always: int, request: EstimateRequest
) -> Iterator[Violation]:
    usable = request.device.memory_bytes
    if usable is not None and figure > usable:
        sentence = (
            f"{format_bytes(figure)} are more than the device's {format_bytes(usable)}; give both "
            "in the same unit"
        )
        yield Violation(path, sentence)
    if figure < always:
        sentence = (
            f"{format_bytes(figure)} are less than the {format_bytes(always)} of parameters and "
            "master weights that these settings put on the rank from the start; check the "
            "settings, or the unit"
        )
        yield Violation(path, sentence)


def _contradicted(
    path: str, name: str, given: Measurement, figure: int, seen: dict[tuple[str, int, str], int]
) -> Iterator[Violation]:
    key = (given.phase, given.rank, name)
    other = seen.setdefault(key, figure)
    if other != figure:
        where = given.phase or "the whole run"
        sentence = (
            f"{format_bytes(figure)} and {format_bytes(other)} are both given for {where} on rank "
            f"{given.rank}; a peak has one figure"
        )
        yield Violation(f"{path}.{name}", sentence)


def _residuals(request: EstimateRequest, places: _Places) -> Iterator[Residual]:
    for each in request.measurements:
        peak = places.of(each.rank).peak
        if each.phase:
            expected = places.phases(each.rank)[each.phase]
            peak = peak_of(expected, places.run.profile, places.run.degrees)
        kinds = (
            (MeasuredBytes.ALLOCATED, each.allocated_bytes, peak.allocated),
            (MeasuredBytes.RESERVED, each.reserved_bytes, peak.reserved),
        )
        for kind, figure, interval in kinds:
            if figure is not None:
                yield Residual(
                    phase=each.phase,
                    rank=each.rank,
                    kind=kind,
                    measured_bytes=figure,
                    estimated=interval,
                    residual_bytes=figure - interval.expected_bytes,
                    position=_position(figure, interval),
                )


def _position(figure: int, interval: Interval) -> ResidualPosition:
    if figure < interval.low_bytes:
        return ResidualPosition.BELOW
    return ResidualPosition.INSIDE if figure <= interval.high_bytes else ResidualPosition.ABOVE


@dataclass(frozen=True, slots=True)
class _Scale:
    """Measured over expected, in parts per million; the peak's own bytes where it was measured."""

    ppm: int
    stands_on: str
    measured_bytes: int | None = None


def _calibration(
    answer: Estimate,
    request: EstimateRequest,
    base: RunPeak,
    at_peak: Sequence[Residual],
    residuals: Sequence[Residual],
) -> Calibration | None:
    allocated, reserved = (
        _scale(_of_kind(at_peak, kind), _of_kind(residuals, kind))
        for kind in (MeasuredBytes.ALLOCATED, MeasuredBytes.RESERVED)
    )
    if allocated is None:
        return None
    scale, peak = allocated, _scaled(base.peak, allocated, reserved)
    where = f"{answer.peak_moment} ({answer.peak_phase}), as calibrated"
    return Calibration(
        peak=peak,
        verdict=judge(peak, answer.steady_bytes, limit_of(request), where).verdict,
        scale_ppm=scale.ppm,
        stands_on=scale.stands_on,
        basis=answer.basis if scale.measured_bytes is None else Basis.MEASURED,
    )


def _of_kind(residuals: Sequence[Residual], kind: MeasuredBytes) -> list[Residual]:
    return [each for each in residuals if each.kind is kind]


def _scale(at_peak: Sequence[Residual], residuals: Sequence[Residual]) -> _Scale | None:
    """Go by the peak itself if it was measured, else by the median of all places."""
    used = at_peak or residuals
    ratios = [
        each.measured_bytes * MILLION // each.estimated.expected_bytes
        for each in used
        if each.estimated.expected_bytes
    ]
    if not ratios:
        return None
    if at_peak:
        # Ranks differ; the fullest decides whether a job runs.
        where = "the peak itself" if len(at_peak) == 1 else f"the highest of {len(at_peak)} peaks"
        highest = max(each.measured_bytes for each in at_peak)
        return _Scale(max(ratios), f"measured: {where}", highest)
    named = ", ".join(sorted({each.phase or f"the peak of rank {each.rank}" for each in used}))
    return _Scale(
        round(median(ratios)),
        f"not measured at the peak: scaled by the median of measured over expected in {named}; the "
        "margin is the estimate's own",
    )


def _scaled(peak: Peak, scale: _Scale, reserved: _Scale | None) -> Peak:
    """Scale the interval; around what was measured itself a narrower margin is left."""
    allocated = _interval(peak.allocated, scale)
    held = _interval(peak.reserved, reserved or replace(scale, measured_bytes=None))
    held = Interval(
        low_bytes=max(held.low_bytes, allocated.low_bytes),
        expected_bytes=max(held.expected_bytes, allocated.expected_bytes),
        high_bytes=max(held.high_bytes, allocated.high_bytes),
    )
    outside = peak.outside
    device = Interval(
        low_bytes=held.low_bytes + outside.low_bytes,
        expected_bytes=held.expected_bytes + outside.expected_bytes,
        high_bytes=held.high_bytes + outside.high_bytes,
    )
    return Peak(allocated=allocated, reserved=held, outside=outside, device=device)


def _interval(interval: Interval, scale: _Scale) -> Interval:
    if scale.measured_bytes is not None:
        expected = scale.measured_bytes
        return Interval(
            low_bytes=expected * (1000 - MEASURED_MARGIN_PERMILLE) // 1000,
            expected_bytes=expected,
            high_bytes=-(-expected * (1000 + MEASURED_MARGIN_PERMILLE) // 1000),
        )
    return Interval(
        low_bytes=interval.low_bytes * scale.ppm // MILLION,
        expected_bytes=interval.expected_bytes * scale.ppm // MILLION,
        high_bytes=-(-interval.high_bytes * scale.ppm // MILLION),
    )
