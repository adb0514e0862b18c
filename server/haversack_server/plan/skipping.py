"""Rung 4 for tensors that skip over blocks: whether one is there depends on who keeps it.

The rungs of a chain count such a tensor with its maker, whatever is chosen: their plans fit, and
may cost more than they need. A chain without any such tensor that some choice frees is a bound from
the other side. Where the two differ, OR-Tools solves for what lies between, within bounded work.
With segments tensors count with their makers. Knows no request.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from haversack.errors import MissingExtraError
from haversack.plan import Rung, SolvedBy
from haversack_server.plan import ceiling
from haversack_server.plan.ladder import Found, Ladder
from haversack_server.plan.pieces import Piece
from haversack_server.plan.profiled_chain import ProfiledChain
from haversack_server.plan.profiled_peaks import peak_of
from haversack_server.plan.programme import (
    EXTRA,
    WORK_NS,
    Programme,
    Solved,
    is_there,
    unsettled,
)
from haversack_server.plan.skips import most_spared
from haversack_server.plan.solving import Solving

if TYPE_CHECKING:
    from haversack_kernels.ceiling import Choice

_REASON = "some of these tensors are freed early, which sums over a chain do not tell"


@dataclass(frozen=True, slots=True)
class _Floor:
    """The least peak found and the pieces that have it; no plan has less than ``bound_bytes``."""

    peak_bytes: int
    pieces: tuple[Piece, ...]
    bound_bytes: int


class Skipping(Ladder):
    """The rungs of a chain with skip tensors, for any budget."""

    def __init__(
        self, chain: ProfiledChain, state_limit: int, solving: Solving, work_ns: int | None
    ) -> None:
        super().__init__(chain, state_limit, solving)
        self._work_ns = work_ns or WORK_NS
        freed = most_spared(chain.skips, len(chain.names))
        self._open = replace(
            self.table,
            forward_base=self.table.forward_base - freed.forward,
            backward_base=self.table.backward_base - freed.backward,
        )

    @cached_property
    def _counted(self) -> tuple[int, tuple[Piece, ...]]:
        """The floor with every tensor on its maker's account."""
        return super().floor()

    @cached_property
    def _least(self) -> _Floor:
        open_floor = ceiling.floor(self._open, self.solving.cancel)
        bound = min(open_floor.peak_bytes, self._counted[0])
        found = [self._counted[1], self.of_options(open_floor.choice)]
        pieces = min(found, key=self._peak)
        if self._peak(pieces) <= bound or not is_there():
            return _Floor(self._peak(pieces), pieces, bound)
        programme = self._programme()
        programme.least_peak(bound, self._peak(pieces) - 1)
        solved = programme.solved(self._work_ns, self.solving.cancel)
        if solved.options is not None:
            pieces = self.of_options(solved.options)
        peak_bytes = self._peak(pieces)
        lower = peak_bytes if solved.proven else max(bound, solved.lower_bound)
        return _Floor(peak_bytes, pieces, min(lower, peak_bytes))

    def floor(self) -> tuple[int, tuple[Piece, ...]]:
        """Find the least peak of all plans, and the pieces of one that has it."""
        return self._least.peak_bytes, self._least.pieces

    def check_infeasible(self, budget_bytes: int) -> None:
        """Refuse to say that a budget below the least peak found has no plan, if that is open.

        Raises ``DeadlineError``, or ``MissingExtraError`` where OR-Tools could tell.
        """
        if budget_bytes < self._least.bound_bytes:
            return
        if not is_there():
            raise MissingExtraError(f"whether so little is enough is settled by {EXTRA}")
        raise unsettled("whether so little is enough", self._work_ns)

    def assumed(self) -> tuple[str, ...]:
        """Say how segments count, and what is not settled without OR-Tools."""
        said = super().assumed()
        if self.cuts:
            said += ("tensors that skip over blocks: with segments their makers keep them",)
        if not is_there():
            said += (f"tensors that skip over blocks: plans are settled by {EXTRA}",)
        return said

    def solve(self, budget_bytes: int) -> Found:
        """Find the cheapest plan for a budget that is not below the floor."""
        fits = budget_bytes >= self._counted[0]
        counted = super().solve(budget_bytes) if fits else None
        (choice,) = self._open_choices([budget_bytes])
        return self._between(budget_bytes, counted, choice, self._work_ns)

    def frontier(self, budgets: Sequence[int]) -> tuple[Found, ...]:
        """Find the cheapest plan for every budget; none is below the floor."""
        fitting = [each for each in budgets if each >= self._counted[0]]
        counted = dict(zip(fitting, super().frontier(fitting), strict=True))
        work_ns = max(1, self._work_ns // max(1, len(budgets)))
        return tuple(
            self._between(each, counted.get(each), choice, work_ns)
            for each, choice in zip(budgets, self._open_choices(budgets), strict=True)
        )

    def _open_choices(self, budgets: Sequence[int]) -> "tuple[Choice, ...]":
        return ceiling.frontier(
            self._open, budgets, state_limit=self._state_limit, cancel=self.solving.cancel
        )

    def _between(
        self, budget_bytes: int, counted: Found | None, choice: "Choice", work_ns: int
    ) -> Found:
        """Take the plan of the chain, that of the open chain if it fits, or one between them."""
        known = counted or self._of_least()
        bound = choice.extra if choice.proven else choice.lower_bound
        if not choice.feasible or bound >= known.extra_ns:
            return known
        options = ceiling.local(self._open, choice.options)
        if self._peak(self.of_options(options)) <= budget_bytes:
            return self._best(known, Solved(options, bound, choice.proven), "Pareto lists")
        if not is_there():
            return self._best(known, Solved(None, bound, proven=False), "")
        programme = self._programme()
        programme.hold(budget_bytes)
        programme.least_extra(bound, known.extra_ns - 1)
        programme.start_from(options)
        solved = programme.solved(work_ns, self.solving.cancel)
        solved = replace(solved, lower_bound=max(bound, solved.lower_bound))
        return self._best(known, solved, "CP-SAT")

    def _best(self, known: Found, solved: Solved, how: str) -> Found:
        """Put what was solved for beside what is known, which costs more than it."""
        if solved.options is None:
            lower = known.lower_bound if solved.proven else solved.lower_bound
            return replace(known, lower_bound=min(lower, known.lower_bound))
        found = self._found(solved.options, how)
        lower = found.extra_ns if solved.proven else min(solved.lower_bound, found.extra_ns)
        return replace(found, lower_bound=min(lower, known.lower_bound))

    def _found(self, options: tuple[int, ...], how: str) -> Found:
        pieces = self.of_options(options)
        extra_ns = sum(piece.extra_ns for piece in pieces)
        return Found(
            pieces=pieces,
            extra_ns=extra_ns,
            lower_bound=extra_ns,
            rung=Rung.GRAPH,
            solver=f"tensors that skip over blocks, {how}",
            solved_by=SolvedBy(algorithm=how, reason=_REASON),
        )

    def _of_least(self) -> Found:
        """Give the plan of least peak, where no other is known."""
        options = [piece.option for piece in self._least.pieces if piece.option is not None]
        return self._found(tuple(options), "least peak")

    def _programme(self) -> Programme:
        each_alone = range(len(self.chain.names))
        return Programme(each_alone, self.chain.options, self.table, self.chain.skips)

    def _peak(self, pieces: Sequence[Piece]) -> int:
        return peak_of(self.chain, pieces)[0]
