"""The verdict: a peak with its margin against a limit, by DESIGN's rule.

FITS if the high end is within the limit, DOES_NOT_FIT if the low end is above it, TIGHT between,
UNKNOWN if a term that decides is not known.
"""

from dataclasses import dataclass

from haversack.estimate import EstimateVerdict, Peak, ReasonCode
from haversack.run import BytesKind, Interval, TrainingRun
from haversack.units import format_bytes


@dataclass(frozen=True, slots=True)
class Limit:
    """Bytes that a rank may use, and which bytes are meant."""

    limit_bytes: int
    of_device: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its reason, for programs and in a sentence."""

    verdict: EstimateVerdict
    reason_code: ReasonCode
    reason: str


NOT_ASKED = Judgement(
    EstimateVerdict.UNSPECIFIED,
    ReasonCode.UNSPECIFIED,
    "no verdict: give the device's memory or a budget",
)


def limit_of(run: TrainingRun) -> Limit | None:
    """Find the limit of a run: its budget, else the device's memory, else none."""
    if run.budget is not None:
        return Limit(run.budget.bytes, run.budget.kind is BytesKind.DEVICE)
    if run.device.memory_bytes is not None:
        return Limit(run.device.memory_bytes, True)
    return None


def judge(peak: Peak, steady_bytes: int, limit: Limit | None, where: str) -> Judgement:
    """Judge a peak; ``where`` names its moment."""
    if limit is None:
        return NOT_ASKED
    interval = peak.device if limit.of_device else peak.allocated
    span = _span(interval)
    allowed = format_bytes(limit.limit_bytes)
    if interval.high_bytes <= limit.limit_bytes:
        sentence = f"the peak of {span} at {where} is within {allowed}"
        return Judgement(EstimateVerdict.FITS, ReasonCode.WITHIN_LIMIT, sentence)
    if interval.low_bytes <= limit.limit_bytes:
        side = "above" if interval.expected_bytes > limit.limit_bytes else "within"
        sentence = (
            f"{allowed} lies inside the margin of the peak, {span} at {where}; "
            f"the expected peak is {side} it"
        )
        return Judgement(EstimateVerdict.TIGHT, ReasonCode.WITHIN_MARGIN, sentence)
    if steady_bytes > limit.limit_bytes:
        return _states_above(steady_bytes, limit)
    sentence = f"the peak of {span} at {where} is above {allowed}"
    return Judgement(EstimateVerdict.DOES_NOT_FIT, ReasonCode.PEAK_ABOVE_LIMIT, sentence)


def judge_states(known_bytes: int, limit: Limit | None) -> Judgement:
    """Judge a subject whose peak is not known: it can fail the limit, but never meet it."""
    if limit is None:
        return NOT_ASKED
    if known_bytes > limit.limit_bytes:
        return _states_above(known_bytes, limit)
    sentence = (
        f"{format_bytes(known_bytes)} of {format_bytes(limit.limit_bytes)} are known; "
        "activations and working tensors come on top and are not"
    )
    return Judgement(EstimateVerdict.UNKNOWN, ReasonCode.ONLY_STATES_KNOWN, sentence)


def not_modelled(what: str) -> Judgement:
    """Say that a setting decides and is not modelled: unknown, whether there is a limit or not."""
    return Judgement(EstimateVerdict.UNKNOWN, ReasonCode.SETTING_NOT_MODELLED, what)


def _states_above(states_bytes: int, limit: Limit) -> Judgement:
    sentence = (
        f"model states alone take {format_bytes(states_bytes)}, "
        f"above {format_bytes(limit.limit_bytes)}"
    )
    return Judgement(EstimateVerdict.DOES_NOT_FIT, ReasonCode.STATES_ABOVE_LIMIT, sentence)


def _span(interval: Interval) -> str:
    low, expected, high = (
        format_bytes(each)
        for each in (interval.low_bytes, interval.expected_bytes, interval.high_bytes)
    )
    return f"{expected} ({low} to {high})"
