"""Options for every one of several budgets, in one sweep or one budget after the other.

One sweep answers all budgets, but nothing bounds its lists (``ceiling_frontier``): short for equal
blocks, longer than all those for single budgets together where blocks differ. So a budget in the
middle is solved by itself first, which tells what all would take.
"""

import numpy as np

from haversack_kernels import ceiling_frontier, sweep
from haversack_kernels._jit import MOST_STATES, Signals
from haversack_kernels.ceiling_choice import Choice, infeasible, searched
from haversack_kernels.errors import SolveCancelled

PROBE_SHARE = 8
"""One state of this many may go to one budget, to see what solving for each would take."""

LEAST_SWEPT = 16
"""One state of this many may go to the sweep in any case."""


def choose(
    needs: sweep.Table, budgets: list[int], state_limit: int, stop: Signals
) -> tuple[Choice, ...]:
    """Choose options for every budget; ``needs`` has in place of ceilings what options need.

    A larger budget never gets a plan of more extra.
    """
    probed, singly = _probed(needs, budgets, state_limit, stop)
    if len(set(budgets)) == 1:
        return _one_by_one(needs, budgets, probed, state_limit, stop)
    most = max(singly // 2, state_limit // LEAST_SWEPT)
    if singly > state_limit:
        most = state_limit - state_limit // PROBE_SHARE
    columns = ceiling_frontier.Chain(needs.offsets, needs.retained, needs.extra, needs.ceiling)
    found = ceiling_frontier.frontier(columns, max(budgets), most, stop)
    if found.status == sweep.CANCELLED:
        raise SolveCancelled(found.states)
    if found.status == sweep.STOPPED:
        return _one_by_one(needs, budgets, probed, state_limit - found.states, stop)
    return tuple(_at(found, budget, needs.offsets.size - 1) for budget in budgets)


def _at(found: ceiling_frontier.Frontier, budget: int, blocks: int) -> Choice:
    """Return the cheapest plan whose peak is within the budget."""
    within = int(np.searchsorted(found.peak, budget, "right"))
    if within == 0:
        return infeasible(blocks)
    plan = ceiling_frontier.plan_at(found.trail, found.node[within - 1], blocks)
    extra = int(found.extra[within - 1])
    return Choice(plan, extra, extra, proven=True, feasible=True)


def _probed(
    needs: sweep.Table, budgets: list[int], state_limit: int, stop: Signals
) -> tuple[dict[int, Choice], int]:
    """Solve for the middle budget; return that, and what all of them would take singly."""
    due = sorted(set(budgets))
    middle = due[len(due) // 2]
    table = needs._replace(ceiling=middle - needs.ceiling)
    choice, states = searched(table, 1, state_limit // PROBE_SHARE, stop)
    return {middle: choice}, states * len(due) if choice.proven else MOST_STATES


def _one_by_one(
    needs: sweep.Table,
    budgets: list[int],
    solved: dict[int, Choice],
    state_limit: int,
    stop: Signals,
) -> tuple[Choice, ...]:
    """Solve for each budget; a plan holds for larger budgets too, and a bound for smaller ones."""
    solved = _each(needs, sorted(set(budgets)), solved, state_limit, stop)
    best, bound = None, 0
    for budget in sorted(solved):
        choice = solved[budget]
        if best is not None and best.extra < choice.extra:
            solved[budget] = best._replace(lower_bound=choice.lower_bound)
        best = solved[budget] if choice.feasible else None
    for budget in sorted(solved, reverse=True):
        choice = solved[budget]
        if choice.feasible:
            bound = max(bound, choice.lower_bound)
            solved[budget] = choice._replace(lower_bound=bound, proven=bound == choice.extra)
    return tuple(solved[budget] for budget in budgets)


def _each(
    needs: sweep.Table,
    budgets: list[int],
    solved: dict[int, Choice],
    state_limit: int,
    stop: Signals,
) -> dict[int, Choice]:
    """Solve for each budget with an equal share of the states left, the unproven ones twice."""
    solved = dict(solved)
    for _ in range(2):
        due = [budget for budget in budgets if budget not in solved or not solved[budget].proven]
        for number, budget in enumerate(due):
            share = max(state_limit, 0) // (len(due) - number)
            table = needs._replace(ceiling=budget - needs.ceiling)
            choice, states = searched(table, 1, share, stop)
            before, state_limit = solved.get(budget, choice), state_limit - states
            better = min(before, choice, key=lambda each: each.extra)
            bound = max(before.lower_bound, choice.lower_bound)
            proven = bound == better.extra
            solved[budget] = better._replace(lower_bound=bound, proven=proven)
    return solved
