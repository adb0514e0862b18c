"""What a plan predicts of its step, held against what was measured of it.

The peak is compared where the measured step is the one that was counted, time where it was timed on
the same device; else the report says why not. Which regions run again is compared in any case. No
torch, no verdict.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from haversack.run import BlockAction
from haversack.units import format_bytes, format_ns
from haversack.verify import FacetResult, FacetValue, RecomputeCount, VerifyApplied

# A kernel that is given one of Python's numbers makes a tensor of it for a moment, 8 bytes, and a
# copy of another type (torch 2.13 on the CPU); no table of a model's tensors has those.
NUMBERS_BYTES = 64
FAR_PERCENT = 10  # further above than this a prediction wastes what could have been saved
# A median of three steps less another one is noise where it is a small part of either.
_LEAST_NS = 1_000_000
_LEAST_PERCENT = 5
_PLAN_AGAIN = (
    "Plan again with what was measured, which keeps it free: haversack plan --profile with this "
    "plan's file and --measured peak= with the measured bytes"
)
_LOOK_FOR_BLOCKS = (
    "Look for blocks that this step does not run, or that save nothing for backward: a plan for "
    "these arguments knows them"
)


def compared_with_plan(
    applied: VerifyApplied, actions: Sequence[BlockAction], counts: Sequence[RecomputeCount]
) -> VerifyApplied:
    """Add the findings, and what is not compared after all."""
    replayed = {count.region for count in counts if count.entries > count.plain_entries}
    planned = {action.block for action in actions if action.option != "save"}
    found = replace(applied, replayed_count=len(replayed & planned))
    too_short = tuple(_too_short(found))
    found = replace(found, not_compared=(*found.not_compared, *too_short))
    return replace(
        found,
        findings=(
            *_of_peak(found),
            *_of_regions(sorted(planned - replayed), sorted(replayed - planned), len(planned)),
            *_of_segments(found),
            *_of_time(found),
        ),
    )


def is_compared(applied: VerifyApplied, what: str) -> bool:
    """Whether nothing keeps the peak, or the time, from being compared."""
    return not any(each.startswith(f"{what}:") for each in applied.not_compared)


def _beyond_bytes(applied: VerifyApplied) -> int:
    """Give the bytes by which the measured peak is above the predicted one; below 0 below it."""
    predicted = applied.predicted_peak_bytes
    if predicted is None or not is_compared(applied, "peak"):
        return 0
    return applied.measured_peak_bytes - predicted


def _of_peak(applied: VerifyApplied) -> Iterator[str]:
    beyond, predicted = _beyond_bytes(applied), applied.predicted_peak_bytes or 0
    measured = format_bytes(applied.measured_peak_bytes)
    if beyond > NUMBERS_BYTES:
        yield (
            f"peak: a step of the plan takes {measured} at {applied.peak_at}, "
            f"{format_bytes(beyond)} more than the {format_bytes(predicted)} that it predicts. "
            "Tensors are predicted; what kernels and the allocator take beside them is measured "
            "only, and haversack plan --measured keeps it free"
        )
    elif beyond > 0:
        yield (
            f"peak: {format_bytes(beyond)} above the prediction, no more than Python's numbers "
            "take that kernels make tensors of for a moment"
        )
    elif -beyond * 100 > FAR_PERCENT * applied.measured_peak_bytes:
        share = (
            f"{-beyond / applied.measured_peak_bytes:.0%} above the "
            if applied.measured_peak_bytes
            else ""
        )
        yield (
            f"peak: {format_bytes(predicted)} are predicted, {share}{measured} measured: so much "
            "more could be saved"
        )


def _of_regions(missing: Sequence[str], beyond: Sequence[str], planned: int) -> Iterator[str]:
    if missing:
        yield (
            f"regions: {len(missing)} of {planned} blocks that the plan recomputes did not run "
            f"again, first {missing[0]}"
        )
    if beyond:
        yield (
            f"regions: {len(beyond)} ran again that the plan does not recompute, first {beyond[0]}"
        )


def _of_segments(applied: VerifyApplied) -> Iterator[str]:
    if applied.segments_in_effect != applied.segment_count:
        yield (
            f"segments: {applied.segments_in_effect} were in effect in place of "
            f"{applied.segment_count}"
        )


def _too_short(applied: VerifyApplied) -> Iterator[str]:
    """Say where the time of recomputation is lost in that of the step."""
    if applied.predicted_extra_ns is None or not is_compared(applied, "time"):
        return
    most = max(applied.predicted_extra_ns, applied.measured_extra_ns)
    if most < _LEAST_NS or most * 100 < _LEAST_PERCENT * applied.plain_ns:
        yield (
            f"time: not compared: recomputation of {format_ns(most)} is too little beside steps of "
            f"{format_ns(applied.plain_ns)} to be told from their noise"
        )


def _of_time(applied: VerifyApplied) -> Iterator[str]:
    predicted, measured = applied.predicted_extra_ns, applied.measured_extra_ns
    if not predicted or not is_compared(applied, "time"):
        return
    yield (
        f"time: recomputation takes {measured / predicted:.2f} times the {format_ns(predicted)} "
        "that the plan has for it"
    )


def memory_with_plan(found: FacetResult, applied: VerifyApplied) -> FacetResult:
    """Make a peak above its prediction a difference of the memory's facet."""
    if _beyond_bytes(applied) <= NUMBERS_BYTES:
        return found
    return _different(found, _found_of(applied, "peak"), _PLAN_AGAIN)


def counts_with_plan(found: FacetResult, applied: VerifyApplied) -> FacetResult:
    """Make regions that do not run again as the plan has it a difference of the counts' facet."""
    wrong = _found_of(applied, "regions", "segments")
    return _different(found, wrong, _LOOK_FOR_BLOCKS) if wrong else found


def _found_of(applied: VerifyApplied, *subjects: str) -> list[str]:
    split = [each.partition(": ") for each in applied.findings]
    return [said[0].upper() + said[1:] for subject, _, said in split if subject in subjects]


def _different(found: FacetResult, said: Sequence[str], hint: str) -> FacetResult:
    """Add differences to a facet, to which one that it has already stays the first."""
    is_first = found.value is not FacetValue.DIFFERENT
    details = said if is_first else (found.detail, *said)
    return replace(
        found,
        value=FacetValue.DIFFERENT,
        detail=". ".join(details),
        compared_count=max(found.compared_count, len(said)),
        different_count=(0 if is_first else found.different_count) + len(said),
        fix_hint=hint if is_first else found.fix_hint,
    )
