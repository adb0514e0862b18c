"""Ceilings with several microbatches in flight, behind ``haversack_kernels.ceiling``.

All that a plan retains then counts ``others`` times more at every ceiling, so a ceiling depends on
every option: u + others * R <= ceiling, with R the sum of all retained bytes. For R in a range,
    ceilings lowered by others * (its least R)   and   R at most its largest
are necessary, and plain ceilings, the last one that of an empty block at the end: their least extra
bounds the range from below. Where its plan is not allowed, it is because it retains more than its
own ceilings leave room for. Between the two the range is cut; neither part has that plan, so the
search ends. The part of the least bound is cut next.
"""

import heapq
from typing import NamedTuple

import numpy as np

from haversack_kernels import ceiling_search, sweep
from haversack_kernels._jit import Int64, Signals
from haversack_kernels.ceiling_search import Found

SHARE = 4
"""One state of this many that are left is for the next range."""


class _Range(NamedTuple):
    """Hold a range of R and the best plan under what is necessary there; sorted by its bound."""

    bound: int
    low: int
    high: int
    plan: tuple[int, ...]


def search(table: sweep.Table, others: int, state_limit: int, signals: Signals) -> Found | None:
    """Find the plan of least extra with ``others`` more in flight, or None if there is no plan."""
    plan, extra = sweep.leanest(table, others)
    if extra < 0:
        return None
    best, open_ranges, given_up = Found(plan, extra, 0, 0), list[_Range](), extra
    most = int(np.maximum.reduceat(table.retained, table.offsets[:-1]).sum())
    cuts = [(int(table.retained[plan].sum()), most)]  # the leanest plan retains least
    while cuts:
        for low, high in cuts:
            best = _look(table, others, low, high, best, state_limit, signals, open_ranges)
        cuts = []
        while open_ranges and open_ranges[0].bound < best.extra and not cuts:
            if best.states >= state_limit:
                given_up = min(given_up, open_ranges[0].bound)
                break
            chosen = heapq.heappop(open_ranges)
            plan = np.array(chosen.plan)
            retained, room = _retained(table, plan), _room(table, plan) // others
            if retained <= room:  # allowed, but not proven to be the best in its range
                given_up = min(given_up, chosen.bound)
            else:
                middle = (retained + room) // 2
                cuts = [(chosen.low, middle), (middle + 1, chosen.high)]
    return best._replace(lower_bound=min(best.extra, given_up))


def _look(
    table: sweep.Table,
    others: int,
    low: int,
    high: int,
    best: Found,
    state_limit: int,
    signals: Signals,
    open_ranges: list[_Range],
) -> Found:
    """Open the range, and return its plan if that is allowed and better than the best."""
    if low > high:
        return best
    limit = max(state_limit - best.states, 0) // SHARE
    found = ceiling_search.search(_necessary(table, others * low, high), limit, signals)
    states = best.states + table.retained.size + (found.states if found else 0)
    best = best._replace(states=states)
    if found is None:
        return best
    plan = found.plan[:-1]
    heapq.heappush(open_ranges, _Range(found.lower_bound, low, high, tuple(plan.tolist())))
    if found.extra < best.extra and others * _retained(table, plan) <= _room(table, plan):
        return best._replace(plan=plan, extra=found.extra)
    return best


def _necessary(table: sweep.Table, lowered: int, most: int) -> sweep.Table:
    """Return the table with ceilings lowered, and an empty block under a ceiling of ``most``."""
    return sweep.Table(
        np.append(table.offsets, table.retained.size + 1),
        np.append(table.retained, 0),
        np.append(table.extra, 0),
        np.append(table.ceiling - lowered, most),
    )


def _retained(table: sweep.Table, plan: Int64) -> int:
    return int(table.retained[plan].sum())


def _room(table: sweep.Table, plan: Int64) -> int:
    """Return what the plan leaves free at its tightest ceiling."""
    retained = table.retained[plan]
    return int((table.ceiling[plan] - np.cumsum(retained) + retained).min())
