"""The bounds that tell the search of ``haversack_kernels.core`` which states to drop.

Two are tested, both exact in integers: Dantzig's (1957), which prices a unit of size, and one that
also prices a copy, for a quota that the number of copies has to keep (``haversack_kernels.quota``).
A state's weight is its size minus the capacity. Knows nothing of lists or chunks.
"""

from typing import NamedTuple

from haversack_kernels._exact import at_least
from haversack_kernels._jit import jit


class Quota(NamedTuple):
    """Say how many copies there are at most (``price`` > 0) or at least (< 0), at what price.

    Every solution that beats the best keeps the quota.
    """

    price: int
    copies: int


class Rates(NamedTuple):
    """Say what a unit of room gains at most when filled, and loses at least when freed.

    Fractions, gain over size; the second pair is with the copies' price taken off.
    """

    fill_gain: int
    fill_size: int
    free_gain: int
    free_size: int
    priced_fill_gain: int
    priced_fill_size: int
    priced_free_gain: int
    priced_free_size: int


class Rate(NamedTuple):
    """Hold the rates of ``Rates`` for states that fit, or for those that do not."""

    gain: int
    size: int
    priced_gain: int
    priced_size: int


@jit
def can_beat(weight: int, gain: int, copies: int, best: int, quota: Quota, rates: Rates) -> bool:
    """Tell whether both bounds on the state are above ``best``."""
    fits = weight <= 0
    rate_gain = rates.fill_gain if fits else rates.free_gain
    rate_size = rates.fill_size if fits else rates.free_size
    priced_gain = rates.priced_fill_gain if fits else rates.priced_free_gain
    priced_size = rates.priced_fill_size if fits else rates.priced_free_size
    short = best + 1 - gain
    short_priced = short - quota.price * (quota.copies - copies)
    return bool(
        at_least(-weight, rate_gain, short, rate_size)
        & at_least(-weight, priced_gain, short_priced, priced_size)
    )


@jit
def filled(rates: Rates) -> Rate:
    """Return the rates of states that fit."""
    return Rate(rates.fill_gain, rates.fill_size, rates.priced_fill_gain, rates.priced_fill_size)


@jit
def freed(rates: Rates) -> Rate:
    """Return the rates of states that do not fit."""
    return Rate(rates.free_gain, rates.free_size, rates.priced_free_gain, rates.priced_free_size)
