"""The least peak of all plans, by a list of (retained, peak) from the last block back.

A plan of the blocks from one on has two figures: what the other microbatches in flight retain by
it, and the highest that it reaches, both counted from an empty prefix. An option before it makes
    retained = the option's + retained     peak = max(the option's own, what it retains + peak)
of them, so a plan that another beats in both stays beaten, whatever comes before: it is dropped.
With one microbatch in flight nothing is retained by others, and every list is one plan.

No list is longer than the options from its block on, and one more: under a ceiling that rises, the
leanest plan changes only where an option first becomes allowed, and stays allowed. So there is no
limit on states. Knows no extra: the plan of least peak is not the cheapest.
"""

from typing import NamedTuple

import numpy as np

from haversack_kernels._jit import MAX_INT64, Int64, Signals, jit
from haversack_kernels.sweep import CANCELLED, DONE

NO_PEAK = -(2**62) - 2**61
"""The peak of no blocks: with all that is retained added, still below what any option reaches."""


class Needs(NamedTuple):
    """Hold what the options of block ``j``, at ``offsets[j]:offsets[j + 1]``, retain and need.

    ``need`` is all but what is retained before, as ``haversack_kernels.columns`` bounds it.
    """

    offsets: Int64
    retained: Int64
    need: Int64


class Plans(NamedTuple):
    """Hold plans that none beats in both: ``elsewhere``, by the others, rises, ``peak`` falls."""

    elsewhere: Int64
    peak: Int64


class Least(NamedTuple):
    """Say how high the lowest plan rises, how the search ended, and the plans looked at."""

    peak: int
    status: int
    states: int


@jit
def least_peak(needs: Needs, others: int, signals: Signals) -> Least:
    """Find the least peak, with ``others`` more microbatches in flight."""
    plans, count, spare, looked = _new_plans(1), 1, _new_plans(64), 0
    plans.elsewhere[0], plans.peak[0] = 0, NO_PEAK
    for block in range(needs.offsets.size - 2, -1, -1):
        if signals.cancel[0] != 0:
            return Least(0, CANCELLED, looked)
        signals.steps[0] += 1
        start, end = needs.offsets[block], needs.offsets[block + 1]
        looked += (end - start) * count
        if spare.peak.size < (end - start) * count:
            spare = _new_plans(2 * (end - start) * count)
        retained, need = needs.retained[start:end], needs.need[start:end]
        count = _preceded(plans, count, retained, need, others, spare)
        plans, spare = spare, plans
    return Least(plans.peak[count - 1], DONE, looked)


@jit
def _preceded(
    plans: Plans, count: int, retained: Int64, need: Int64, others: int, out: Plans
) -> int:
    """Put each option of a block before each plan; write what none beats, return how many."""
    head, used, least = np.zeros(need.size, np.int64), 0, MAX_INT64
    while True:
        chosen, elsewhere, peak = -1, 0, 0
        for k in range(need.size):
            head[k] = _next_below(least, plans, head[k], count, retained[k], need[k], others)
            if head[k] < count:
                own, high = _with_option(plans, head[k], retained[k], need[k], others)
                if chosen < 0 or own < elsewhere or (own == elsewhere and high < peak):
                    chosen, elsewhere, peak = k, own, high
        if chosen < 0:
            return used
        least = peak
        out.elsewhere[used], out.peak[used] = elsewhere, peak
        used += 1


@jit
def _next_below(
    least: int, plans: Plans, at: int, count: int, retained: int, need: int, others: int
) -> int:
    """Return the next place whose plan peaks below ``least`` after this option, or the end."""
    while at < count:
        elsewhere, peak = _with_option(plans, at, retained, need, others)
        if peak < least:
            return at
        if need + elsewhere >= least:  # and more for every plan from here on
            return count
        at += 1
    return at


@jit
def _with_option(plans: Plans, at: int, retained: int, need: int, others: int) -> tuple[int, int]:
    elsewhere = plans.elsewhere[at] + others * retained
    return elsewhere, max(need + elsewhere, plans.peak[at] + (others + 1) * retained)


@jit
def _new_plans(space: int) -> Plans:
    return Plans(np.empty(space, np.int64), np.empty(space, np.int64))
