"""Which assumption broke when memory ran out, by the figures of the error beside the estimate's.

The surest causes come first: what the figures themselves show, then what they say of the estimate.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from haversack.estimate import Peak
from haversack.questions import OomCause, OomCauseKind, OutOfMemory
from haversack.units import GIB, MIB, format_bytes

# What the driver keeps for itself belongs to no process, and grows with the device. A named
# allowance, not measured: what is smaller is not called another process.
DRIVER_BYTES = GIB
MUCH_SMALLER = 0.05  # of the device: past a marketed size for a usable one
EXPANDABLE = (
    "let segments grow: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which makes most of it "
    "usable"
)


@dataclass(frozen=True, slots=True)
class Expected:
    """What the estimate says of the run, and the usable bytes that the request names."""

    peak: Peak
    usable_bytes: int | None


def causes(
    figures: OutOfMemory, expected: Expected | None, *, other_setting: str
) -> tuple[OomCause, ...]:
    """List what broke; () where the figures name nothing."""
    found = [*_limits(figures), *_pieces(figures)]
    if expected is not None:
        found += _outside(figures, expected.peak)
    if other_setting:
        found.append(OomCause(kind=OomCauseKind.OTHER_SETTING, reason=other_setting))
    if expected is None:
        return tuple(found)
    needs = [*_beside_peak(figures, expected)]
    # What was expected not to fit needs no other cause; else it is the last to look at.
    told = figures.allocated_bytes is not None
    hopeless = told and _is_above(expected.peak.device.low_bytes, figures.total_bytes)
    found = [*needs, *found] if hopeless else [*found, *needs]
    smaller = [*_smaller(figures, expected.usable_bytes)]
    decides = any(cause.bytes > (figures.total_bytes or 0) * MUCH_SMALLER for cause in smaller)
    return (*smaller, *found) if decides else (*found, *smaller)


def _limits(figures: OutOfMemory) -> Iterator[OomCause]:
    """Find others on the device, and a limit of the process."""
    total, free, process = figures.total_bytes, figures.free_bytes, figures.process_bytes
    if total is not None and free is not None and process is not None:
        others = total - free - process
        if others > DRIVER_BYTES:
            reason = f"other processes hold {format_bytes(others)} of the device"
            remedy = "end them, or give the job the device alone; nvidia-smi lists them"
            yield _cause(OomCauseKind.OTHER_PROCESS, others, reason, remedy)
    allowed = figures.allowed_bytes
    if allowed is not None and (total is None or allowed < total):
        reason = f"a limit of the process allows {format_bytes(allowed)}"
        remedy = "raise it (set_per_process_memory_fraction), or fit the run to it as a budget"
        yield _cause(OomCauseKind.PROCESS_LIMIT, allowed, reason, remedy)


def _smaller(figures: OutOfMemory, usable: int | None) -> Iterator[OomCause]:
    """Find that the device has less than the request says."""
    total = figures.total_bytes
    if total is not None and usable is not None and usable > total:
        reason = (
            f"the device has {format_bytes(total)}, {format_bytes(usable - total)} less than the "
            "request says"
        )
        remedy = f"ask with --gpu-memory {total // MIB}MiB"
        yield _cause(OomCauseKind.SMALLER_DEVICE, usable - total, reason, remedy)


def _pieces(figures: OutOfMemory) -> Iterator[OomCause]:
    """Bytes that the allocator holds and cannot use."""
    requested, unused = figures.requested_bytes or 0, figures.unallocated_bytes
    if unused is None or unused + (figures.free_bytes or 0) < requested or unused == 0:
        return
    together = "" if unused >= requested else " with what is free on the device"
    reason = (
        f"the allocator held {format_bytes(unused)} that no tensor used, which{together} would "
        "have been enough, in pieces that were too small (fragmentation)"
    )
    yield _cause(OomCauseKind.FRAGMENTATION, unused, reason, EXPANDABLE)


def _outside(figures: OutOfMemory, peak: Peak) -> Iterator[OomCause]:
    """The context, communicators and other libraries in this process."""
    if figures.process_bytes is None or figures.allocated_bytes is None:
        return
    held = figures.allocated_bytes + (figures.unallocated_bytes or 0)
    outside = figures.process_bytes - held
    if outside > peak.outside.high_bytes:
        reason = (
            f"{format_bytes(outside)} of the process lie outside PyTorch's allocator, more than "
            f"the {format_bytes(peak.outside.high_bytes)} expected of context and communicators"
        )
        remedy = "fewer process groups, or a second framework in the process that can be left out"
        yield _cause(OomCauseKind.OUTSIDE_ALLOCATOR, outside, reason, remedy)


def _beside_peak(figures: OutOfMemory, expected: Expected) -> Iterator[OomCause]:
    """Compare what would have been allocated with the expected peak, or that with the device."""
    if figures.allocated_bytes is None:
        yield from _beside_device(figures, expected.peak)
        return
    needed = figures.allocated_bytes + (figures.requested_bytes or 0)
    interval = expected.peak.allocated
    high, middle = format_bytes(interval.high_bytes), format_bytes(interval.expected_bytes)
    if needed > interval.high_bytes:
        reason = (
            f"with it {format_bytes(needed)} would have been allocated, above the high end of the "
            f"estimate, {high}: something is held that the settings do not say"
        )
        yield _cause(OomCauseKind.ABOVE_ESTIMATE, needed - interval.high_bytes, reason)
    elif needed >= interval.low_bytes:
        reason = (
            f"with it {format_bytes(needed)} would have been allocated, as expected of the peak "
            f"({middle}): the run needs more than there was"
        )
        yield _cause(OomCauseKind.EXPECTED_PEAK, needed, reason)
    elif _is_above(expected.peak.device.high_bytes, figures.total_bytes):
        reason = (
            f"{format_bytes(needed)} would have been allocated, on the way to an expected peak of "
            f"{middle}, which the device may not hold"
        )
        yield _cause(OomCauseKind.EXPECTED_PEAK, interval.expected_bytes, reason)


def _beside_device(figures: OutOfMemory, peak: Peak) -> Iterator[OomCause]:
    """Hold the expected peak against the device; short errors do not say what was allocated."""
    if _is_above(peak.device.high_bytes, figures.total_bytes):
        middle = format_bytes(peak.allocated.expected_bytes)
        reason = f"the run has an expected peak of {middle}, which the device may not hold"
        yield _cause(OomCauseKind.EXPECTED_PEAK, peak.allocated.expected_bytes, reason)


def _is_above(size_bytes: int, limit_bytes: int | None) -> bool:
    return limit_bytes is not None and size_bytes > limit_bytes


def _cause(kind: OomCauseKind, size_bytes: int, reason: str, remedy: str = "") -> OomCause:
    return OomCause(kind=kind, bytes=size_bytes, reason=reason, remedy=remedy)
