"""What the searches under ceilings answer with, whichever of them it was.

Knows nothing of capacities, bases or budgets: options come with their ceilings.
"""

from typing import NamedTuple

import numpy as np

from haversack_kernels import ceiling_flight, ceiling_search, sweep
from haversack_kernels._jit import MOST_STATES, Int64, Signals, integer
from haversack_kernels.errors import SolveCancelled


class Choice(NamedTuple):
    """Say which option every block takes, what they cost together, and how sure that is.

    ``options`` has shape ``(blocks,)``: rows of the option columns. ``proven`` means that ``extra``
    is the least; else the least lies between ``lower_bound`` and ``extra``. That no plan is
    ``feasible`` is always proven; then ``options`` are -1, ``extra`` and ``lower_bound`` 0.
    """

    options: Int64
    extra: int
    lower_bound: int
    proven: bool
    feasible: bool


def searched(
    options: sweep.Table, in_flight: int, state_limit: int, stop: Signals
) -> tuple[Choice, int]:
    """Choose options whose ceilings are known, and say how many states were looked at."""
    blocks, limit = options.offsets.size - 1, min(integer("state_limit", state_limit), MOST_STATES)
    if stop.cancel[0]:
        raise SolveCancelled(0)
    if blocks == 0:
        return Choice(np.zeros(0, np.int64), 0, 0, proven=True, feasible=True), 0
    if in_flight == 1:
        found = ceiling_search.search(options, limit, stop)
    else:
        found = ceiling_flight.search(options, in_flight - 1, limit, stop)
    if found is None:
        return infeasible(blocks), 0
    proven = found.lower_bound == found.extra
    choice = Choice(found.plan, found.extra, found.lower_bound, proven, feasible=True)
    return choice, found.states


def infeasible(blocks: int) -> Choice:
    """Return the answer where no plan keeps the ceilings."""
    return Choice(np.full(blocks, -1), 0, 0, proven=True, feasible=False)
