"""Exact 0/1 knapsack over bytes, on one CPU core.

Knows the reductions that need no search: what is worth nothing, what can never fit, what always
fits, a common divisor of the sizes, and candidates that are equal. The search itself is in
``haversack_kernels.core``. Knows nothing of names, units or budgets.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels import core
from haversack_kernels._jit import (
    MAX_INT64,
    MOST_STATES,
    CancelFlag,
    Int64,
    flag,
    natural,
    total,
)
from haversack_kernels.errors import SolveCancelled

DEFAULT_STATE_LIMIT = 1 << 23
"""States looked at before the search gives up: about 0.1 s and at most 0.3 GB."""

MAX_CAPACITY = 1 << 62


class Selection(NamedTuple):
    """Say what is saved, what that is worth, and how much more there could be.

    ``mask`` has shape ``(n,)``, true where saved. ``proven`` means that ``gain`` is the optimum;
    else the optimum lies between ``gain`` and ``upper_bound``.
    """

    mask: NDArray[np.bool_]
    gain: int
    upper_bound: int
    proven: bool


class _Runs(NamedTuple):
    """Hold equal candidates as one run, densest run first; ``order`` has their indices."""

    order: NDArray[np.intp]
    start: NDArray[np.intp]
    size: Int64
    gain: Int64
    copies: Int64


def solve(
    sizes: Int64,
    gains: Int64,
    capacity: int,
    *,
    state_limit: int = DEFAULT_STATE_LIMIT,
    cancel: CancelFlag | None = None,
) -> Selection:
    """Choose the subset of largest gain whose sizes sum to at most ``capacity``.

    ``sizes`` and ``gains`` have shape ``(n,)``, both >= 0; ``capacity`` is at most 2^62 unless
    everything fits. The same arguments always give the same subset. Of equal candidates the
    earlier are saved, and what gains nothing is not; among other subsets of equal gain the search
    does not look for the smallest.

    Past ``state_limit`` the best subset found is returned with ``proven`` false. Raises
    ``OverflowError`` if the optimum exceeds 2^63-1, ``SolveCancelled`` once ``cancel[0]`` is set.
    """
    sizes, gains, stop = natural("sizes", sizes), natural("gains", gains), flag(cancel)
    _check(sizes, gains, capacity)
    if stop[0]:
        raise SolveCancelled(0)
    useful = (gains > 0) & (sizes <= min(capacity, MAX_INT64))
    if total(sizes[useful]) <= capacity:
        gain = _representable(total(gains[useful]))
        return Selection(useful, gain, gain, proven=True)
    return _search(sizes, gains, capacity, useful, state_limit, stop)


def _check(sizes: Int64, gains: Int64, capacity: int) -> None:
    if sizes.shape != gains.shape:
        raise ValueError(f"{sizes.size} sizes but {gains.size} gains: give one gain for each size")
    if capacity < 0:
        raise ValueError(f"capacity {capacity} is negative")


def _representable(gain: int) -> int:
    if gain > MAX_INT64:
        raise OverflowError(f"the optimum is at least {gain}, above 2^63-1: scale the gains down")
    return gain


def _search(
    sizes: Int64,
    gains: Int64,
    capacity: int,
    useful: NDArray[np.bool_],
    state_limit: int,
    cancel: CancelFlag,
) -> Selection:
    free = useful & (sizes == 0)
    wanted = np.flatnonzero(useful & (sizes > 0))
    free_gain = _representable(total(gains[free]))
    unit = int(np.gcd.reduce(sizes[wanted]))
    if capacity // unit > MAX_CAPACITY:
        raise ValueError(f"capacity {capacity} is above 2^62 and does not hold everything")
    runs = _runs(wanted, sizes[wanted] // unit, gains[wanted])
    found = core.search(
        runs.size,
        runs.gain,
        runs.copies,
        capacity // unit,
        free_gain,
        free_gain + total(gains[wanted]) > MAX_INT64,
        min(state_limit, MOST_STATES),
        cancel,
    )
    if found.status == core.CANCELLED:
        raise SolveCancelled(found.states)
    if found.status == core.OVERFLOW:
        _representable(MAX_INT64 + 1)
    mask = free
    mask[_earliest(runs, found.taken)] = True
    proven = found.status == core.PROVEN or found.gain == found.upper_bound < MAX_INT64
    return Selection(mask, found.gain, found.upper_bound, proven)


def _runs(wanted: NDArray[np.intp], sizes: Int64, gains: Int64) -> _Runs:
    order = np.lexsort((gains, sizes, -(gains / sizes)))
    size, gain = sizes[order], gains[order]
    fresh = np.ones(order.size, dtype=np.bool_)
    fresh[1:] = (size[1:] != size[:-1]) | (gain[1:] != gain[:-1])
    start = np.flatnonzero(fresh)
    copies = np.diff(start, append=order.size)
    return _Runs(wanted[order], start, size[start], gain[start], copies)


def _earliest(runs: _Runs, taken: Int64) -> NDArray[np.intp]:
    """List the candidates to save: the first ``taken[r]`` of every run ``r``."""
    place_in_run = np.arange(runs.order.size) - np.repeat(runs.start, runs.copies)
    return runs.order[place_in_run < np.repeat(taken, runs.copies)]
