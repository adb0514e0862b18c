"""What is left to choose once a search has looked at all its states, for a dense DP to go on from.

The best that is known settles chunks: where Dantzig's bound on all solutions that change a chunk is
not above it, none of them is better, and the chunk stays as the break solution has it (Ingargiola
and Korsh 1973, with the bound of Dembo and Hammer 1980). Fewer candidates in less room are left,
gathered and divided already. Knows nothing of states, devices or cells.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haversack_kernels import knapsack
from haversack_kernels._jit import Int64, jit
from haversack_kernels.bounds import Quota
from haversack_kernels.core import next_helpful
from haversack_kernels.cores import new_core, rates
from haversack_kernels.knapsack import Problem, Selection


class Unsettled(NamedTuple):
    """Hold chunks to choose from within ``capacity``: ``copies`` of a ``run`` each.

    ``base`` has shape ``(runs,)``: the copies that are saved whatever is chosen, for ``base_gain``.
    A choice that gains no more than was known may miss the optimum; one that gains more does not.
    """

    size: Int64
    gain: Int64
    copies: Int64
    run: Int64
    base: Int64
    base_gain: int
    capacity: int


def left_by(problem: Problem, selection: Selection) -> Unsettled:
    """Return what the best known leaves to choose."""
    if not problem.narrow:
        return _everything(problem)
    known = (selection.gain - problem.free_gain) // problem.runs.gain_unit
    copies = np.minimum(problem.copies, problem.capacity // problem.size)
    order = np.arange(problem.size.size)
    columns = problem.size, problem.gain, copies, order, problem.capacity
    return Unsettled(*_left(*columns, Quota(0, 0), known))


def with_choice(
    problem: Problem, unsettled: Unsettled, mask: NDArray[np.bool_], selection: Selection
) -> Selection:
    """Return the better of what was known and the chosen chunks, with the bound that was known."""
    taken = unsettled.base.copy()
    np.add.at(taken, unsettled.run[mask], unsettled.copies[mask])
    gains = unsettled.gain[mask].tolist()
    found = knapsack.selected(problem, taken, unsettled.base_gain + sum(gains))
    if found.gain <= selection.gain:
        return selection
    return Selection(
        found.mask, found.gain, selection.upper_bound, found.gain == selection.upper_bound
    )


def _everything(problem: Problem) -> Unsettled:
    """Return every copy by itself: chunks may gain more than an int64 holds."""
    run = np.repeat(np.arange(problem.size.size), problem.copies)
    return Unsettled(
        size=problem.size[run],
        gain=problem.gain[run],
        copies=np.ones_like(run),
        run=run,
        base=np.zeros_like(problem.copies),
        base_gain=0,
        capacity=problem.capacity,
    )


@jit
def _left(
    size: Int64, gain: Int64, copies: Int64, order: Int64, capacity: int, quota: Quota, known: int
) -> tuple[Int64, Int64, Int64, Int64, Int64, int, int]:
    """Return the fields of ``Unsettled``: the open chunks, and the break solution without them."""
    core = new_core(size, gain, copies, order, capacity, quota)
    chunks, base, base_gain, room = core.chunks, core.base.copy(), core.gain, core.room
    left, count, every = np.empty(chunks.size.size, np.int64), 0, rates(core, 0)
    at = next_helpful(core, 0, known, every)
    while at < chunks.size.size:
        left[count] = at
        count += 1
        if chunks.sign[at] < 0:
            base[chunks.run[at]] -= chunks.copies[at]
            base_gain -= chunks.gain[at]
            room += chunks.size[at]
        at = next_helpful(core, at + 1, known, every)
    left = left[:count]
    return (
        chunks.size[left],
        chunks.gain[left],
        chunks.copies[left],
        chunks.run[left],
        base,
        base_gain,
        room,
    )
