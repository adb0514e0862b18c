"""From expected allocated bytes to a peak with its margins, and back from a limit.

The margins come with the kernel profile: fitted to measured runs of the kind (``spread.py``), or
the profile's own, which is called not calibrated. Bytes have a kind: allocated (live tensors,
workspaces included), reserved (what the allocator holds), outside (context, communication library),
device (reserved and outside).
"""

from haversack.estimate import Peak
from haversack.run import Interval
from haversack_server.memory.degrees import Degrees
from haversack_server.memory.kernel_profile import KernelProfile


def outside(profile: KernelProfile, degrees: Degrees) -> Interval:
    """Bytes outside the allocator; the low end has no communicators yet."""
    communicators = degrees.axes_in_use * profile.communicator_bytes
    alone = profile.cuda_context_bytes
    total = alone + communicators
    return Interval(low_bytes=alone, expected_bytes=total, high_bytes=total)


def peak_of(
    expected_bytes: int,
    profile: KernelProfile,
    degrees: Degrees,
    *,
    states_bytes: int = 0,
    reserved_bytes: int = 0,
) -> Peak:
    """Put margins around expected allocated bytes; model states are in them, whatever the rest.

    ``reserved_bytes`` are held by the allocator from the loading of the model on.
    """
    low = expected_bytes * (1000 - profile.margin_low_permille) // 1000
    allocated = Interval(
        low_bytes=min(max(low, states_bytes), expected_bytes),
        expected_bytes=expected_bytes,
        high_bytes=_up(expected_bytes, 1000 + profile.margin_high_permille),
    )
    reserved = Interval(
        low_bytes=allocated.low_bytes,
        expected_bytes=max(
            reserved_bytes, _up(expected_bytes, profile.reserved_over_allocated_permille)
        ),
        high_bytes=max(
            _up(reserved_bytes, 1000 + profile.margin_high_permille),
            _up(allocated.high_bytes, profile.reserved_over_allocated_high_permille),
        ),
    )
    beside = outside(profile, degrees)
    device = Interval(
        low_bytes=reserved.low_bytes + beside.low_bytes,
        expected_bytes=reserved.expected_bytes + beside.expected_bytes,
        high_bytes=reserved.high_bytes + beside.high_bytes,
    )
    return Peak(allocated=allocated, reserved=reserved, outside=beside, device=device)


def allocated_for_device(
    usable_bytes: int, profile: KernelProfile, degrees: Degrees, *, expected: bool = False
) -> int:
    """Give the most expected allocated bytes whose device figure is within ``usable_bytes``.

    The device figure is the high one, or the expected one on request. Negative where the bytes
    outside the allocator alone are too many.
    """
    beside = outside(profile, degrees)
    if expected:
        reserved = usable_bytes - beside.expected_bytes
        return reserved * 1000 // profile.reserved_over_allocated_permille
    high = (usable_bytes - beside.high_bytes) * 1000
    return allocated_for_high(high // profile.reserved_over_allocated_high_permille, profile)


def allocated_for_high(high_bytes: int, profile: KernelProfile) -> int:
    """Give the most expected allocated bytes whose high end is within ``high_bytes``."""
    return high_bytes * 1000 // (1000 + profile.margin_high_permille)


def _up(size_bytes: int, permille: int) -> int:
    return -(-size_bytes * permille // 1000)
