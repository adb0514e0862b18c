"""Options for all blocks of a model on one rank, under the ceilings of its timeline.

The chain without a pipeline: one pass forward, one back, and the kernels' dispatch. The stages of a
pipeline have a search of the same shape, ``in_flight``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from haversack.plan import SolvedBy
from haversack_server.memory.chain import Chain
from haversack_server.plan import ceiling
from haversack_server.plan.solving import Solving, solved_by

if TYPE_CHECKING:
    from haversack_kernels import ceiling as kernels


@dataclass(frozen=True, slots=True)
class Choice:
    """An option for each block, its extra time, and the least that any plan has."""

    options: tuple[int, ...]
    extra_ns: int
    lower_bound: int
    solved_by: SolvedBy | None = None

    @property
    def proven(self) -> bool:
        """Whether no plan has less extra time."""
        return self.lower_bound == self.extra_ns


class OneStage:
    """The options of a chain, for any budget."""

    def __init__(self, chain: Chain, state_limit: int, solving: Solving) -> None:
        self._table = ceiling.tables(chain)
        self._state_limit, self._solving = state_limit, solving

    @cached_property
    def _least(self) -> ceiling.Floor:
        return ceiling.floor(self._table, self._solving.cancel)

    def floor(self) -> tuple[int, tuple[int, ...]]:
        """Find the least peak of all plans, and a plan that has it."""
        return self._least.peak_bytes, self._least.choice

    def peak(self, options: Sequence[int]) -> int:
        """Give the highest moment with these options."""
        return ceiling.peak(self._table, options)

    def solve(self, budget_bytes: int) -> Choice:
        """Find the options of least extra time within a budget that is not below the floor."""
        choice, why = ceiling.solve(
            self._table, budget_bytes, state_limit=self._state_limit, solving=self._solving
        )
        return self._made(choice, solved_by(why))

    def frontier(self, budgets: Sequence[int]) -> list[Choice]:
        """Solve for each budget, all in one sweep if it can be; none is below the floor."""
        found = ceiling.frontier(
            self._table, budgets, state_limit=self._state_limit, cancel=self._solving.cancel
        )
        return [self._made(choice) for choice in found]

    def _made(self, choice: "kernels.Choice", by: SolvedBy | None = None) -> Choice:
        bound = choice.extra if choice.proven else choice.lower_bound
        return Choice(ceiling.local(self._table, choice.options), choice.extra, bound, by)
