"""The rungs for a profiled chain: options by block, then segments, each where it may be cheaper.

Rung 2 chooses an option for each block. Rung 3 cuts the chain into pieces, of which some are
segments; it knows every plan of rung 2, so its answer is never worse. Whether it is tried depends
on the chain alone and never on the budget, so that a larger budget is never worse either. Knows no
request.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from haversack.plan import Rung, SolvedBy
from haversack_server.plan import ceiling, nested
from haversack_server.plan.pieces import Piece, has_segments, pieces_of
from haversack_server.plan.profiled_chain import ProfiledChain
from haversack_server.plan.segment_search import Cut, cheapest, least_peak
from haversack_server.plan.solving import Solving, solved_by

if TYPE_CHECKING:
    from haversack_kernels.ceiling import Choice

MOST_BLOCKS = 130
"""Longest chain that is cut into pieces: 8,500 segments, about 2 s."""
_NEVER = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A plan: its pieces, its extra time, the least that any plan has, and how it was found."""

    pieces: tuple[Piece, ...]
    extra_ns: int
    lower_bound: int
    rung: Rung
    solver: str
    solved_by: SolvedBy | None = None

    @property
    def proven(self) -> bool:
        """Whether no plan has less extra time."""
        return self.lower_bound == self.extra_ns


class Ladder:
    """The rungs of one chain, for any budget."""

    def __init__(self, chain: ProfiledChain, state_limit: int, solving: Solving) -> None:
        self.chain = chain
        self.table = chain.tables()
        self._state_limit = state_limit
        self.solving = solving

    @cached_property
    def pieces(self) -> tuple[tuple[Piece, ...], ...]:
        """All pieces by their first block; without segments where the chain is too long."""
        if len(self.chain.names) <= MOST_BLOCKS:
            return pieces_of(self.chain)
        return pieces_of(replace(self.chain, inside=(None,) * len(self.chain.names)))

    @cached_property
    def cuts(self) -> bool:
        """Whether rung 3 has plans that rung 2 has not."""
        return len(self.chain.names) <= MOST_BLOCKS and has_segments(self.chain)

    def assumed(self) -> tuple[str, ...]:
        """Say which segments no plan has, so that the floor is the least peak of the others."""
        longest = nested.longest_row(self.chain)
        if has_segments(self.chain) and not self.cuts:
            limit = f"none in a chain of more than {MOST_BLOCKS} parts"
        elif self.cuts and longest > nested.MOST_BLOCKS:
            limit = f"none within another in a row of more than {nested.MOST_BLOCKS} blocks"
        elif self.cuts and nested.gathers_again(self.chain):
            limit = "none within another where weights are gathered again for a block's backward"
        else:
            return ()
        return (f"segments: {limit}; the floor is the least peak of plans without such",)

    def floor(self) -> tuple[int, tuple[Piece, ...]]:
        """Find the least peak of all plans, and the pieces of one that has it."""
        least = least_peak(self.pieces)
        return max(least.peak_bytes, self.chain.fixed_bytes), least.pieces

    def solve(self, budget_bytes: int) -> Found:
        """Find the cheapest plan for a budget that is not below the floor."""
        if not self.cuts or ceiling.floor(self.table, self.solving.cancel).peak_bytes <= (
            budget_bytes
        ):
            choice, why = ceiling.solve(
                self.table, budget_bytes, state_limit=self._state_limit, solving=self.solving
            )
            found = replace(
                self._of_choice(choice),
                solver=f"ceiling dynamic programme, Pareto {why.algorithm}",
                solved_by=solved_by(why),
            )
            return self._cut(budget_bytes, found)
        return self._cut(budget_bytes, None)

    def frontier(self, budgets: Sequence[int]) -> tuple[Found, ...]:
        """Find the cheapest plan for every budget; none is below the floor."""
        if not budgets:
            return ()
        choices = ceiling.frontier(
            self.table, budgets, state_limit=self._state_limit, cancel=self.solving.cancel
        )
        return tuple(
            self._cut(budget, self._of_choice(choice) if choice.feasible else None)
            for budget, choice in zip(budgets, choices, strict=True)
        )

    def _of_choice(self, choice: "Choice") -> Found:
        return Found(
            pieces=self.of_options(ceiling.local(self.table, choice.options)),
            extra_ns=choice.extra,
            lower_bound=choice.extra if choice.proven else choice.lower_bound,
            rung=Rung.CEILING,
            solver="ceiling dynamic programme",
        )

    def of_options(self, options: Sequence[int]) -> tuple[Piece, ...]:
        """Give the pieces of a plan by the index of each block's option."""
        return tuple(rows[index] for rows, index in zip(self.pieces, options, strict=True))

    def _cut(self, budget_bytes: int, found: Found | None) -> Found:
        """Take what rung 3 finds where that is cheaper."""
        below = _NEVER if found is None else found.extra_ns
        if not self.cuts or below == 0:
            assert found is not None
            return found
        cut = cheapest(self.pieces, budget_bytes, below, self.solving.cancel)
        if cut is not None and cut.pieces:
            return _of_cut(cut)
        assert found is not None
        # Where lists were cut short, a plan below rung 2's may have been missed.
        lower = found.extra_ns if cut is None else cut.lower_bound
        return replace(found, lower_bound=min(lower, found.extra_ns))


def _of_cut(cut: Cut) -> Found:
    return Found(
        pieces=cut.pieces,
        extra_ns=cut.extra_ns,
        lower_bound=cut.lower_bound,
        rung=Rung.SEGMENTS,
        solver="chain with segments, lists of states",
        solved_by=SolvedBy(
            algorithm="lists", reason="segments of several blocks are cheaper than options alone"
        ),
    )
