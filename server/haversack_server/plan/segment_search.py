"""Rung 3: the cheapest way to cut a chain into pieces, under the ceiling of each.

A state is what the pieces so far retain, and their extra time; of states at one block only those
that no other beats are kept. So the least extra is found, exact in bytes, unless the lists become
longer than ``MOST_WORK`` allows: then states are left out, and a second pass, in which states near
each other count as the best of them, bounds what was missed. Knows no model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haversack_server.plan.pieces import Piece
from haversack_server.plan.solving import Cancel

Int64 = NDArray[np.int64]
Pieces = Sequence[Sequence[Piece]]

MOST_WORK = 10_000_000
"""States looked at, about: a second."""
_NEVER = 2**62


@dataclass(frozen=True, slots=True)
class Cut:
    """The pieces of a plan, its extra time, and the least that any plan has."""

    pieces: tuple[Piece, ...]
    extra_ns: int
    lower_bound: int


@dataclass(frozen=True, slots=True)
class Least:
    """The least peak of all plans, and the pieces of one that has it."""

    peak_bytes: int
    pieces: tuple[Piece, ...]


def least_peak(pieces: Pieces) -> Least:
    """Find the least peak; a budget has a plan exactly when it is not below it."""
    needs = _least_needs(pieces)
    place, chosen = 0, []
    while place < len(pieces):
        best = min(pieces[place], key=lambda piece: _need_from(piece, needs))
        chosen.append(best)
        place = best.stop
    return Least(needs[0], tuple(chosen))


def _least_needs(pieces: Pieces) -> list[int]:
    """Say what blocks from each on need at least, beside what is retained before them."""
    needs = [0] * (len(pieces) + 1)
    for place in range(len(pieces) - 1, -1, -1):
        needs[place] = min(_need_from(piece, needs) for piece in pieces[place])
    return needs


def _need_from(piece: Piece, needs: Sequence[int]) -> int:
    return max(piece.need_bytes, piece.retained_bytes + needs[piece.stop])


def cheapest(pieces: Pieces, budget_bytes: int, below_ns: int, cancel: Cancel = None) -> Cut | None:
    """Find the plan of least extra time within the budget; None if none is below ``below_ns``."""
    most = max(64, MOST_WORK // len(pieces) ** 2)
    lists = _Lists(pieces, budget_bytes, below_ns, most, cancel)
    found = lists.swept(relaxed=False)
    if not lists.cut_short:
        return None if found is None else Cut(lists.traced(), found, found)
    bound = _Lists(pieces, budget_bytes, below_ns, most, cancel).swept(relaxed=True)
    lower = below_ns if bound is None else bound
    if found is None:
        return Cut((), below_ns, lower) if lower < below_ns else None
    return Cut(lists.traced(), found, min(lower, found))


@dataclass(slots=True)
class _States:
    """States at one block, by rising retained bytes and falling extra; how each was reached."""

    retained: Int64
    extra: Int64
    before: Int64
    piece: Int64


class _Lists:
    """The lists of states of a chain, swept from its first block to its last."""

    def __init__(
        self, pieces: Pieces, budget_bytes: int, below_ns: int, most: int, cancel: Cancel
    ) -> None:
        self._pieces, self._budget, self._below = pieces, budget_bytes, below_ns
        self._most, self._cancel = most, cancel
        self._needs = _least_needs(pieces)
        self._at: list[_States] = []
        self._all = [piece for each in pieces for piece in each]
        self._arriving = self._by_stop()
        self.cut_short = False

    def _by_stop(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in range(len(self._pieces) + 1)]
        for number, piece in enumerate(self._all):
            found[piece.stop].append(number)
        return found

    def swept(self, *, relaxed: bool) -> int | None:
        """Return the least extra, or None if no plan is below what was given."""
        zero = np.zeros(1, np.int64)
        self._at = [_States(zero, zero, zero, zero)]
        for place in range(1, len(self._pieces) + 1):
            self._check()
            states = self._kept(self._candidates(place), place)
            self._at.append(self._thinned(states, relaxed))
        last = self._at[-1].extra
        return int(last[-1]) if last.size else None

    def _check(self) -> None:
        if self._cancel is not None and self._cancel[0]:
            from haversack_kernels.errors import SolveCancelled

            raise SolveCancelled(sum(each.extra.size for each in self._at))

    def _candidates(self, place: int) -> _States:
        columns: list[tuple[Int64, Int64, Int64, Int64]] = []
        for number in self._arriving[place]:
            piece = self._all[number]
            source = self._at[piece.first]
            # Lists rise in retained bytes, so that what fits is their beginning.
            room = self._budget - piece.need_bytes
            fits = int(np.searchsorted(source.retained, room, side="right"))
            if fits:
                retained = source.retained[:fits] + piece.retained_bytes
                extra = source.extra[:fits] + piece.extra_ns
                columns.append((retained, extra, np.arange(fits), np.full(fits, number)))
        if not columns:
            none = np.zeros(0, np.int64)
            return _States(none, none, none, none)
        return _States(*(np.concatenate(each) for each in zip(*columns, strict=True)))

    def _kept(self, states: _States, place: int) -> _States:
        """Keep the states that can be completed below the bound and that no other beats."""
        possible = (states.retained <= self._budget - self._needs[place]) & (
            states.extra < self._below
        )
        chosen = np.flatnonzero(possible)
        chosen = chosen[np.lexsort((states.extra[chosen], states.retained[chosen]))]
        extra = states.extra[chosen]
        best_before = np.minimum.accumulate(np.concatenate(([_NEVER], extra)))[:-1]
        chosen = chosen[extra < best_before]
        return _taken(states, chosen)

    def _thinned(self, states: _States, relaxed: bool) -> _States:
        """Leave out states evenly; relaxed, a state has the least of those that it stands for."""
        size = states.retained.size
        if size <= self._most:
            return states
        self.cut_short = True
        bounds = np.linspace(0, size, self._most + 1).astype(np.int64)
        firsts, lasts = bounds[:-1], bounds[1:] - 1
        if not relaxed:
            return _taken(states, firsts)
        thin = _taken(states, firsts)
        thin.extra = states.extra[lasts]
        return thin

    def traced(self) -> tuple[Piece, ...]:
        """Return the pieces that lead to the least extra."""
        place, index = len(self._pieces), self._at[-1].extra.size - 1
        chosen = []
        while place > 0:
            states = self._at[place]
            piece = self._all[int(states.piece[index])]
            index, place = int(states.before[index]), piece.first
            chosen.append(piece)
        return tuple(reversed(chosen))


def _taken(states: _States, chosen: Int64) -> _States:
    return _States(
        states.retained[chosen],
        states.extra[chosen],
        states.before[chosen],
        states.piece[chosen],
    )
