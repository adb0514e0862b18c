"""The limits of the ladder of sizes: fewest GPUs, largest microbatch, longest sequence.

Memory is monotone in the microbatch alone: shards are padded, reduce buckets and communicators come
with the first ranks, not every length is open. So the other searches climb past the first size that
fails, halve the gap, and then look at the neighbours of what they found.
"""

from collections.abc import Callable
from dataclasses import replace
from math import prod

from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateRequest
from haversack.parallelism import Parallelism
from haversack_server.estimate.peaks import Peaks
from haversack_server.estimate.verdict import Limit
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.degrees import resolve
from haversack_server.memory.stopping import Stop, go_on

MOST_GPUS = 4096
MOST_MICROBATCH = 4096
MOST_SEQ = 2**20
NEIGHBOURS = 4  # sizes looked at beyond the one that was found
FAILURES = 2  # rungs of the ladder in a row after which nothing larger is tried

Fits = Callable[[int], bool]


def largest(fits_at: Fits, most: int, *, monotone: bool = False) -> int:
    """Find the largest size up to ``most`` that fits; 0 if none does.

    Where it is ``monotone``, nothing is looked at beyond a size that fails.
    """
    best = _highest_rung(fits_at, most, 1 if monotone else FAILURES)
    if best == 0:
        return 0
    above = min(best * 2, most + 1)
    while True:
        best = _halved(fits_at, best, above)
        if monotone:
            return best
        near = range(min(best + NEIGHBOURS, most), best + 1, -1)
        beyond = next((size for size in near if fits_at(size)), None)
        if beyond is None:
            return best
        best, above = beyond, max(beyond + 1, min(above, most + 1))


def smallest(fits_at: Fits, most: int) -> int | None:
    """Find the smallest size up to ``most`` that fits; None if none does."""
    rung = next((size for size in _ladder(most) if fits_at(size)), None)
    if rung is None:
        return None
    below, best = rung // 2, rung  # the rung below did not fit, or is 0
    while best - below > 1:
        middle = (below + best) // 2
        below, best = (below, middle) if fits_at(middle) else (middle, best)
    nearby = range(max(1, best - NEIGHBOURS), best)
    return next((size for size in nearby if fits_at(size)), best)


def _ladder(most: int) -> list[int]:
    rungs = [2**power for power in range(most.bit_length()) if 2**power < most]
    return [*rungs, most]


def _highest_rung(fits_at: Fits, most: int, failures: int) -> int:
    best, failed = 0, 0
    for rung in _ladder(most):
        if fits_at(rung):
            best, failed = rung, 0
        else:
            failed += 1
        if failed == failures:
            break
    return best


def _halved(fits_at: Fits, below: int, above: int) -> int:
    """Narrow the gap between a size that fits and one that is taken not to."""
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if fits_at(middle) else (below, middle)
    return below


def largest_microbatch(request: EstimateRequest, peaks: Peaks, limit: Limit, stop: Stop) -> int:
    """Find the largest microbatch that fits; 0 if none does.

    No storage of a tape shrinks with it, so no peak does.
    """

    def fits_at(microbatch: int) -> bool:
        go_on(stop)
        training = replace(request.training, microbatch=microbatch)
        return peaks.fits(replace(request, training=training), limit)

    return largest(fits_at, MOST_MICROBATCH, monotone=True)


def longest_seq(request: EstimateRequest, peaks: Peaks, most: int, limit: Limit, stop: Stop) -> int:
    """Find the longest sequence up to ``most`` tokens that fits; 0 if none does."""

    def fits_at(seq: int) -> bool:
        go_on(stop)
        training = replace(request.training, seq=seq)
        return peaks.fits(replace(request, training=training), limit)

    return largest(fits_at, most)


def most_seq(architecture: Architecture) -> int:
    """Give the longest sequence that is searched: learned positions end where their table does."""
    return architecture.max_positions if architecture.learned_positions else MOST_SEQ


_AXES = ("dp_replicate", "dp_shard", "tp", "pp", "cp")


def fewest_gpus(request: EstimateRequest, peaks: Peaks, limit: Limit, stop: Stop) -> int | None:
    """Find the fewest GPUs that fit, in whole groups of the degrees that are given."""
    group = _group(request.parallelism)

    def fits_at(groups: int) -> bool:
        go_on(stop)
        spread = _spread(request.parallelism, groups * group)
        return spread is not None and peaks.fits(replace(request, parallelism=spread), limit)

    groups = smallest(fits_at, max(1, MOST_GPUS // group))
    return None if groups is None else groups * group


def _group(parallelism: Parallelism) -> int:
    """Count the ranks that come at once: those of the degrees, as often as experts need them."""
    degrees: list[int] = [getattr(parallelism, axis) or 1 for axis in _AXES]
    ranks = prod(degrees)
    sizes = (ranks * times for times in range(1, (parallelism.ep or 1) + 1))
    return next((size for size in sizes if _spread(parallelism, size)), ranks)


def _spread(parallelism: Parallelism, ranks: int) -> Parallelism | None:
    """Spread a run over so many ranks; None where an axis does not divide them."""
    try:
        spread = replace(parallelism, world_size=ranks)
        resolve(spread)
    except InvalidRequestError:
        return None
    return spread
