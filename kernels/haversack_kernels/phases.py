"""How the search of ``haversack_kernels.knapsack`` goes on where a first look is not enough.

A quick look proves most instances. Where it does not, gains tend to follow sizes, and Dantzig's
bound is weak: then a quota on the number of copies is priced (``haversack_kernels.quota``; as in
Martello, Pisinger and Toth, 1999), and the search starts anew in the order that the price gives.
Then the problem is halved where that sharpens the bounds (``haversack_kernels.branches``), a thin
list looks for a better best, so that fewer states may still beat it, and then come all states that
are allowed. Knows nothing of states.
"""

from collections.abc import Callable

import numpy as np

from haversack_kernels import branches, quota
from haversack_kernels._jit import Int64, Signals
from haversack_kernels.bounds import Quota
from haversack_kernels.core import ALL, NO_BOUND, PROVEN, STOPPED, Outcome, expand

QUICK, QUICK_PER_RUN = 1 << 13, 4
"""States looked at before a quota is priced, which takes about as long."""

LONGER, LONGER_PRICED = 1 << 16, 1 << 18
"""States looked at before a thinned list, of ``NARROW`` states, looks for a better best.

With a price on copies densities say less, so a thin list finds less, and pairs of lists more.
"""

HALVING, HALVED_FROM = 0.25, 1 << 20
"""Share of the states left that may go to halving the problem, as long as that closes the gap; with
fewer states left than the second, what follows is the better use of them."""

NARROW = 128

FEW = 1 << 10
"""States that are not worth another start."""


def search(
    size: Int64,
    gain: Int64,
    copies: Int64,
    capacity: int,
    state_limit: int,
    signals: Signals,
    allowance: Callable[[], int] | None = None,
) -> Outcome:
    """Search the runs for the largest gain within ``capacity``.

    Arrays have shape ``(runs,)``, densest run first, sizes and gains >= 1. Gains of all copies sum
    up to 2^62 at most, and ``capacity`` is less than that. Where a quick look is not enough,
    ``allowance`` is asked for another limit on states, if there is one.
    """
    columns = size, gain, np.minimum(copies, capacity // size), capacity
    start = Outcome(np.zeros(size.size, np.int64), 0, NO_BOUND, STOPPED, 0)
    plain = np.arange(size.size), Quota(0, 0)
    limits = QUICK + QUICK_PER_RUN * size.size, ALL
    found = _more(columns, plain, start, limits, state_limit, signals)
    if found.status != STOPPED or found.states + FEW > state_limit:
        return found
    if allowance is not None:
        state_limit = min(allowance(), state_limit)
    priced = quota.find(*columns, found.gain)
    way = (quota.order_at(size, gain, priced.price), priced) if priced.price else plain
    longer = LONGER_PRICED if priced.price else LONGER
    for limits in ((longer, ALL), (ALL, NARROW), (ALL, ALL)):
        left = state_limit - found.states
        if left < FEW:
            break
        found = _more(columns, way, found, limits, state_limit, signals)
        if found.status == STOPPED and limits[0] == longer and left >= HALVED_FROM:
            halving = found.states + int((state_limit - found.states) * HALVING)
            found = branches.search(*columns, found, halving, signals)
        if found.status != STOPPED or left < limits[0] < ALL:
            break
    return found


def _more(
    columns: tuple[Int64, Int64, Int64, int],
    way: tuple[Int64, Quota],
    found: Outcome,
    limits: tuple[int, int],
    state_limit: int,
    signals: Signals,
) -> Outcome:
    """Search on, in this order and at this price; ``limits`` are states and width."""
    limit = min(limits[0], state_limit - found.states)
    more = expand(*columns, *way, found.taken, limit, limits[1], signals)
    bound = max(more.gain, min(found.upper_bound, more.upper_bound))
    status = PROVEN if more.gain == bound else more.status
    return Outcome(more.taken, more.gain, bound, status, found.states + more.states)
