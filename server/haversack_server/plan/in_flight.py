"""Options for the chunks of a pipeline stage, with microbatches in flight beside the running one.

At every block of a pass, what it needs, what the blocks of its chunk before it retain, and what the
microbatches in flight retain of every chunk have to be within the budget. So a ceiling depends on
all options. The search divides the ranges in which the sums R of what chunks retain may lie: for R
in a range, ceilings lowered by the least R and a largest R are necessary, and are plain ceilings,
chunk by chunk. Their least extra bounds the range; where its plan is over the budget, the range is
halved. Knows no model; the timeline is asked by others.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count

import numpy as np
from numpy.typing import NDArray

from haversack_server.memory.chain import Chain
from haversack_server.memory.timeline import PassBases, bases_in_flight
from haversack_server.plan.one_stage import Choice
from haversack_server.plan.solving import Cancel

Int64 = NDArray[np.int64]
MOST_RANGES = 400
"""Ranges looked at, each with a solve of a few blocks per chunk: about a second in all."""


@dataclass(frozen=True, slots=True)
class _Range:
    """Sums of what chunks retain, from ``low`` to ``high``; the best plan there, if it fits."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    options: tuple[int, ...]


class InFlight:
    """The options of one stage, for any budget."""

    def __init__(self, chain: Chain, state_limit: int, cancel: Cancel = None) -> None:
        self._passes, self._fixed = bases_in_flight(chain)
        self._options = [block.options for block in chain.blocks]
        self._chunks = [
            range(each.start, each.stop) for each in chain.pipeline.chunks_of(len(chain.blocks))
        ]
        self._state_limit, self._cancel = state_limit, cancel

    def floor(self) -> tuple[int, tuple[int, ...]]:
        """Find the least peak of all plans by halving, and a plan that has it."""
        leanest = tuple(
            min(range(len(rows)), key=lambda index: rows[index].retained_bytes)
            for rows in self._options
        )
        low, high, best = self._fixed, self.peak(leanest), leanest
        while low < high:
            middle = (low + high) // 2
            found = self._leanest(middle)
            if found is None:
                low = middle + 1
            else:
                high, best = middle, found
        return high, best

    def peak(self, options: Sequence[int]) -> int:
        """Give the highest moment with these options."""
        retained = self._retained(options)
        return max(self._fixed, *(self._height(each, options, retained) for each in self._passes))

    def solve(self, budget_bytes: int) -> Choice:
        """Find the options of least extra time within a budget that is not below the floor."""
        best = self._leanest(budget_bytes)
        assert best is not None
        best_extra, number = self._extra(best), count()
        waiting: list[tuple[int, int, _Range]] = []
        most = tuple(
            sum(max(row.retained_bytes for row in self._options[place]) for place in chunk)
            for chunk in self._chunks
        )
        self._open(waiting, number, self._retained(best), most, budget_bytes)
        for _ in range(MOST_RANGES):
            if not waiting or waiting[0][0] >= best_extra:
                return Choice(best, best_extra, best_extra)
            bound, _, chosen = heapq.heappop(waiting)
            if self.peak(chosen.options) <= budget_bytes:
                return Choice(chosen.options, self._extra(chosen.options), bound)
            for low, high in self._halves(chosen):
                self._open(waiting, number, low, high, budget_bytes)
        bound = min(best_extra, waiting[0][0]) if waiting else best_extra
        return Choice(best, best_extra, bound)

    def frontier(self, budgets: Sequence[int]) -> list[Choice]:
        """Solve for each budget; none is below the floor."""
        return [self.solve(budget_bytes) for budget_bytes in budgets]

    def _open(
        self,
        waiting: list[tuple[int, int, _Range]],
        number: Iterator[int],
        low: tuple[int, ...],
        high: tuple[int, ...],
        budget_bytes: int,
    ) -> None:
        found = self._necessary(low, high, budget_bytes)
        if found is not None:
            heapq.heappush(waiting, (found[1], next(number), _Range(low, high, found[0])))

    def _halves(
        self, chosen: _Range
    ) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]:
        """Divide the sums of the chunk that retains most above its least; the plan is in one half
        no more, or under higher sums."""
        retained = self._retained(chosen.options)
        above = [have - least for have, least in zip(retained, chosen.low, strict=True)]
        chunk = max(range(len(above)), key=above.__getitem__)
        middle = chosen.low[chunk] + (above[chunk] - 1) // 2
        return (
            (chosen.low, _replaced(chosen.high, chunk, middle)),
            (_replaced(chosen.low, chunk, middle + 1), chosen.high),
        )

    def _necessary(
        self, low: tuple[int, ...], high: tuple[int, ...], budget_bytes: int
    ) -> tuple[tuple[int, ...], int] | None:
        """Choose options of least extra and bound it, under what R in the range makes necessary."""
        from haversack_kernels import ceiling

        found, bound = list[int](), 0
        for chunk, most in zip(self._chunks, high, strict=True):
            needs = self._needs(chunk, low)
            columns = [row for place in chunk for row in self._options[place]]
            sizes = [0, *accumulate(len(self._options[place]) for place in chunk)]
            # A last block of one option holds the sum of what is retained to its most.
            need = np.array([*needs, 0], dtype=np.int64)
            capacity = np.array([*[budget_bytes] * len(chunk), most], dtype=np.int64)
            choice = ceiling.solve(
                np.array([*sizes, sizes[-1] + 1], dtype=np.int64),
                np.array([*(row.retained_bytes for row in columns), 0], dtype=np.int64),
                need,
                need,
                np.array([*(row.extra_ns for row in columns), 0], dtype=np.int64),
                capacity,
                capacity,
                state_limit=self._state_limit,
                cancel=self._cancel,
            )
            if not choice.feasible:
                return None
            rows = choice.options[:-1] - np.array(sizes[:-1], dtype=np.int64)
            found += rows.tolist()
            bound += choice.lower_bound
        return tuple(found), bound

    def _needs(self, chunk: range, low: Sequence[int]) -> list[int]:
        """Give what each option of a chunk needs at least, the least in flight included."""
        needs: list[int] = []
        own = [each for each in self._passes if each.start == chunk.start]
        beside = [_beside(each, low) for each in own]
        for place in range(len(chunk)):
            for index in range(len(self._options[chunk.start + place])):
                needs.append(
                    max(
                        each.needs[place][index] + more
                        for each, more in zip(own, beside, strict=True)
                    )
                )
        return needs

    def _leanest(self, budget_bytes: int) -> tuple[int, ...] | None:
        """Find the plan that retains least within the budget, or None if none is.

        What it retains under no microbatches in flight is the least that those in flight retain;
        with that its ceilings are lower. So the sums rise until they stay.
        """
        if budget_bytes < self._fixed:
            return None
        low = (0,) * len(self._chunks)
        while True:
            options: list[int] = []
            for chunk in self._chunks:
                found = self._leanest_of(chunk, self._needs(chunk, low), budget_bytes)
                if found is None:
                    return None
                options += found
            retained = self._retained(options)
            if retained == low:
                return tuple(options)
            low = retained

    def _leanest_of(self, chunk: range, needs: list[int], budget_bytes: int) -> list[int] | None:
        before, start, chosen = 0, 0, list[int]()
        for place in chunk:
            rows = self._options[place]
            allowed = [
                index for index in range(len(rows)) if before + needs[start + index] <= budget_bytes
            ]
            if not allowed:
                return None
            best = min(
                allowed, key=lambda index: (rows[index].retained_bytes, rows[index].extra_ns)
            )
            chosen.append(best)
            before, start = before + rows[best].retained_bytes, start + len(rows)
        return chosen

    def _height(self, each: PassBases, options: Sequence[int], retained: Sequence[int]) -> int:
        before, highest = 0, 0
        for place, needs in enumerate(each.needs, each.start):
            highest = max(highest, before + needs[options[place]])
            before += self._options[place][options[place]].retained_bytes
        return highest + _beside(each, retained)

    def _retained(self, options: Sequence[int]) -> tuple[int, ...]:
        return tuple(
            sum(self._options[place][options[place]].retained_bytes for place in chunk)
            for chunk in self._chunks
        )

    def _extra(self, options: Sequence[int]) -> int:
        rows = zip(self._options, options, strict=True)
        return sum(each[index].extra_ns for each, index in rows)


def _beside(each: PassBases, retained: Sequence[int]) -> int:
    return sum(times * size for times, size in zip(each.others, retained, strict=True))


def _replaced(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])
