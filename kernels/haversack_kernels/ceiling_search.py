"""The search of ``haversack_kernels.ceiling``: sweeps under a bound that is raised step by step.

A sweep (``haversack_kernels.sweep``) drops every state that cannot end at or below an extra that it
is given: the closer to the least extra, the fewer states. So it is tried from the bound of the
relaxation (``haversack_kernels.prices``) up, the distance doubled each time. A sweep that finds
nothing has raised the bound; the first that finds a plan has found the best.

Past the state limit, sweeps of narrow lists look for better plans, and what they leave out bounds
the least extra from below. Knows nothing of bases, peaks or budgets.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from haversack_kernels import ceiling_kept, prices, sweep
from haversack_kernels._jit import Int64, Signals
from haversack_kernels.ceiling_kept import Kept
from haversack_kernels.errors import SolveCancelled

FIRST_STEP = 256
"""The first distance is this part of what the relaxation's whole plan costs above the bound."""

ANY_WIDTH = 1 << 60

NARROW_SHARE = 4
"""One state of this many is kept for narrow sweeps, each of which takes half of what is left."""


class Found(NamedTuple):
    """Hold the best plan found, its extra, what no plan is below, and the states looked at."""

    plan: Int64
    extra: int
    lower_bound: int
    states: int


def search(table: sweep.Table, state_limit: int, signals: Signals) -> Found | None:
    """Find the plan of least extra, or None if there is no plan at all."""
    plan, extra = sweep.leanest(table, 0)
    if extra < 0:
        return None
    priced = prices.tuned(table)
    outlook = prices.outlook(table, priced.price)
    bound = max(int(np.ceil(outlook.fixed[0])), 0)
    whole = int(table.extra[priced.plan].sum())
    if whole < extra and ceiling_kept.is_allowed(table, priced.plan):
        plan, extra = priced.plan, whole
    best = _Best(table, outlook, plan, extra, bound, signals)
    step = max(abs(whole - bound) // FIRST_STEP, 1)
    if not best.deepen(step, state_limit - state_limit // NARROW_SHARE):
        best.narrow(state_limit)
    return Found(best.plan, best.extra, best.bound, best.states)


@dataclass(slots=True)
class _Best:
    """Hold the best plan so far and the bound; each sweep improves one or both."""

    table: sweep.Table
    outlook: sweep.Outlook
    plan: Int64
    extra: int
    bound: int
    signals: Signals
    states: int = 0

    def deepen(self, step: int, state_limit: int) -> bool:
        """Raise the bound until the best is found; tell whether it was within the limit."""
        while self.bound <= self.extra:  # also if equal: of the best plans a certain one is due
            most = min(self.bound + step, self.extra)
            kept = ceiling_kept.within(self.table, self.outlook, most)
            found = self._sweep(kept, most, ANY_WIDTH, state_limit)
            if found.status == sweep.STOPPED:
                return False
            if found.options.size == kept.first.size - 1:
                break
            self.bound, step = most + 1, 2 * step
        self.bound = self.extra
        return True

    def narrow(self, state_limit: int) -> None:
        """Look for better plans with lists as wide as the states that are left allow."""
        while self.bound < self.extra:
            kept = ceiling_kept.within(self.table, self.outlook, self.extra - 1)
            width = (state_limit - self.states) // (2 * max(kept.option_row.size, 1))
            if width < 1:
                return
            before = self.extra
            found = self._sweep(kept, before - 1, width, state_limit)
            if found.status == sweep.DONE:
                self.bound = max(self.bound, min(found.left_out, self.extra))
            if self.extra == before:
                return

    def _sweep(self, kept: Kept, most: int, width: int, state_limit: int) -> sweep.Sweep:
        limit = state_limit - self.states
        found = sweep.sweep(kept.table, kept.outlook, most, width, limit, self.signals)
        self.states += found.states
        if found.status == sweep.CANCELLED:
            raise SolveCancelled(self.states)
        if found.options.size == kept.first.size - 1 and found.status == sweep.DONE:
            self.plan, self.extra = ceiling_kept.plan_of(kept, found.options), found.extra
        return found
