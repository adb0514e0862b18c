"""Rung 4 under equal treatment: choices for classes of blocks, solved for by OR-Tools.

Equal treatment ties blocks together wherever they are, so no sweep from the first block to the last
knows what a state costs later. Where there are too many choices to try all, this solves for them,
within bounded work, and says how far from the best its answer may be. Knows no request.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cached_property

from haversack_server.plan.ladder import Ladder
from haversack_server.plan.profiled_peaks import peak_of
from haversack_server.plan.programme import WORK_NS, Programme, Solved, unsettled
from haversack_server.plan.symmetric import Alike


class Coupled:
    """Choices that treat the blocks of a class alike; ``classes`` names that of each block."""

    def __init__(self, classes: Sequence[Hashable], ladder: Ladder, work_ns: int | None) -> None:
        self._classes, self._ladder = classes, ladder
        self._work_ns = work_ns or WORK_NS

    @cached_property
    def _least(self) -> Alike:
        chain, programme = self._ladder.chain, self._programme()
        first = self._alike((0,) * len(chain.options))
        programme.least_peak(chain.fixed_bytes, first.peak_bytes)
        programme.start_from(first.options)
        found = self._solved(programme)
        if found.options is None or not found.proven:
            raise unsettled("the least peak", self._work_ns)
        return self._alike(found.options)

    def floor(self) -> Alike:
        """Give the choice with the least peak."""
        return self._least

    def solve(self, budget_bytes: int) -> Alike:
        """Give the cheapest choice within a budget that is not below the floor."""
        programme, least = self._programme(), self._least
        programme.hold(budget_bytes)
        programme.least_extra(0, least.extra_ns)
        programme.start_from(least.options)
        found = self._solved(programme)
        best = least if found.options is None else self._alike(found.options)
        bound = best.extra_ns if found.proven else min(found.lower_bound, best.extra_ns - 1)
        return replace(best, lower_bound=max(0, bound))

    def _programme(self) -> Programme:
        chain = self._ladder.chain
        return Programme(self._classes, chain.options, self._ladder.table, chain.skips)

    def _solved(self, programme: Programme) -> Solved:
        return programme.solved(self._work_ns, self._ladder.solving.cancel)

    def _alike(self, options: tuple[int, ...]) -> Alike:
        chain = self._ladder.chain
        extra = sum(rows[i].extra_ns for rows, i in zip(chain.options, options, strict=True))
        return Alike(options, extra, peak_of(chain, self._ladder.of_options(options))[0], 0)
