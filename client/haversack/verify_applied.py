"""What a Verify job of a plan adds to its report: a planned step beside its prediction.

What each field means is said once, in ``verify.proto``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyApplied:
    """A plan in effect: whole training steps, measured on the job's device."""

    saved_count: int = 0
    recomputed_count: int = 0
    selective_count: int = 0
    predicted_peak_bytes: int | None = None
    measured_peak_bytes: int = 0
    plain_peak_bytes: int = 0
    peak_at: str = ""
    predicted_extra_ns: int | None = None
    measured_extra_ns: int = 0
    method: str = ""
    segment_count: int = 0
    replayed_count: int = 0
    segments_in_effect: int = 0
    not_compared: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    plain_ns: int = 0
