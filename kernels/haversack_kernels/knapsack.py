"""Exact 0/1 knapsack over bytes, on one CPU core.

Knows the reductions that need no search: what is worth nothing, what can never fit, what always
fits, a common divisor of the sizes, and candidates that are equal. The search itself is in
``haversack_kernels.phases`` and ``core``. Knows nothing of names, units or budgets.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels import core, phases, runs, wide
from haversack_kernels._jit import (
    MAX_INT64,
    MOST_STATES,
    CancelFlag,
    Int64,
    Signals,
    integer,
    natural,
    signals,
)
from haversack_kernels.errors import SolveCancelled

DEFAULT_STATE_LIMIT = 1 << 23
"""States looked at before the search gives up: about 0.1 s and at most 0.3 GB."""

NARROW = 1 << 62
"""What gains may sum up to, and capacities stay below, for the search in int64."""

_SEED = runs.new_seed()


class Selection(NamedTuple):
    """Say what is saved, what that is worth, and how much more there could be.

    ``mask`` has shape ``(n,)``, true where saved. ``proven`` means that ``gain`` is the optimum;
    else the optimum lies between ``gain`` and ``upper_bound``.
    """

    mask: NDArray[np.bool_]
    gain: int
    upper_bound: int
    proven: bool


class Problem(NamedTuple):
    """Hold candidates that do not all fit, as runs: ``size``, ``gain``, ``copies``, densest first.

    ``order`` says which of ``runs`` they are. Sizes and the capacity are in units of the sizes,
    gains in units of the gains, but for the two sums.
    """

    runs: runs.Runs
    order: Int64
    size: Int64
    gain: Int64
    copies: Int64
    capacity: int
    gain_sum: int
    free_gain: int

    @property
    def narrow(self) -> bool:
        """Tell whether the search in int64 holds it."""
        return self.gain_sum // self.runs.gain_unit <= NARROW and self.capacity < NARROW


def solve(
    sizes: Int64,
    gains: Int64,
    capacity: int,
    *,
    state_limit: int = DEFAULT_STATE_LIMIT,
    cancel: CancelFlag | None = None,
    steps: Int64 | None = None,
) -> Selection:
    """Choose the subset of largest gain whose sizes sum to at most ``capacity``.

    ``sizes`` and ``gains`` have shape ``(n,)``, both >= 0. The same arguments always give the same
    subset. Of equal candidates the earlier are saved, and what gains nothing is not; among other
    subsets of equal gain the search does not look for the smallest.

    Past ``state_limit`` the best subset found is returned with ``proven`` false. Raises
    ``OverflowError`` if the optimum exceeds 2^63-1, ``SolveCancelled`` at the next list step once
    ``cancel[0]`` is set. ``steps``, one int64, counts the list steps begun.
    """
    problem, stop = reduced(sizes, gains, capacity), signals(cancel, steps)
    if stop.cancel[0]:
        raise SolveCancelled(0)
    return problem if isinstance(problem, Selection) else search(problem, state_limit, stop)


def reduced(sizes: Int64, gains: Int64, capacity: int) -> Problem | Selection:
    """Check the candidates and gather them in runs; return the answer at once if all fit."""
    sizes, gains = natural("sizes", sizes), natural("gains", gains)
    capacity = integer("capacity", capacity)
    _check(sizes, gains, capacity)
    found = runs.reduce(sizes, gains, min(capacity, MAX_INT64), _SEED)
    size_sum, gain_sum, free_gain = (runs.whole(found.sums, which) for which in range(3))
    if size_sum <= capacity:
        return Selection(found.of != runs.USELESS, _representable(gain_sum), gain_sum, proven=True)
    order = _densest_first(found)
    return Problem(
        runs=found,
        order=order,
        size=found.size[order],
        gain=found.gain[order],
        copies=found.copies[order],
        capacity=capacity // found.size_unit,
        gain_sum=gain_sum - free_gain,
        free_gain=_representable(free_gain),
    )


def search(
    problem: Problem,
    state_limit: int,
    stop: Signals,
    allowance: Callable[[], int] | None = None,
) -> Selection:
    """Choose as ``solve`` does, from candidates that are reduced.

    ``allowance`` is asked for another limit on states where a quick look is not enough.
    """
    outcome = (phases if problem.narrow else wide).search(
        problem.size,
        problem.gain,
        problem.copies,
        problem.capacity,
        min(integer("state_limit", state_limit), MOST_STATES),
        stop,
        allowance,
    )
    if outcome.status == core.CANCELLED:
        raise SolveCancelled(outcome.states)
    found = selected(problem, outcome.taken, outcome.gain)
    bound = problem.free_gain + outcome.upper_bound * problem.runs.gain_unit
    return found._replace(upper_bound=min(bound, MAX_INT64), proven=outcome.status == core.PROVEN)


def selected(problem: Problem, taken: Int64, gain: int) -> Selection:
    """Return the candidates that so many copies of each run are, and what is free, as if optimal.

    ``gain`` is that of the copies, in units of the gains.
    """
    of_run = np.empty_like(taken)
    of_run[problem.order] = taken
    whole = _representable(problem.free_gain + gain * problem.runs.gain_unit)
    return Selection(runs.mask(problem.runs.of, of_run), whole, whole, proven=True)


def _densest_first(found: runs.Runs) -> Int64:
    density = found.gain / found.size
    order = np.argsort(-density)
    runs.order_exactly(order, found.gain, found.size, density, found.size)
    return order


def _representable(gain: int) -> int:
    if gain > MAX_INT64:
        raise OverflowError(f"the optimum is at least {gain}, above 2^63-1: scale the gains down")
    return gain


def _check(sizes: Int64, gains: Int64, capacity: int) -> None:
    if sizes.shape != gains.shape:
        raise ValueError(f"{sizes.size} sizes but {gains.size} gains: give one gain for each size")
    if capacity < 0:
        raise ValueError(f"capacity {capacity} is negative")
