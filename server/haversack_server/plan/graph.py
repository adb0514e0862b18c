"""Rung 4: choices that are coupled across the chain, by CP-SAT of OR-Tools within a time limit.

Equal treatment ties blocks together wherever they are, so no sweep from the first block to the last
knows what a state costs later. Where there are too many choices to try all, this solves for them: a
variable per class and option, a ceiling per block and option. It is started from the cheapest
choice of one kind for all, and says how far from the best its answer may be. Knows no model.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from haversack.errors import DeadlineError, MissingExtraError
from haversack_server.memory.chain import Option
from haversack_server.plan.ceiling import Tables
from haversack_server.plan.symmetric import Alike

NS_PER_S = 10**9
MOST_NS = 10 * NS_PER_S
"""Time for one solve where the request does not say."""


@dataclass(frozen=True, slots=True)
class _Model:
    """The programme, and its variables by class and option."""

    programme: Any
    chosen: dict[tuple[Hashable, int], Any]


class Coupled:
    """Choices that treat the blocks of a class alike; ``classes`` names that of each block."""

    def __init__(
        self,
        classes: Sequence[Hashable],
        options: Sequence[Sequence[Option]],
        table: Tables,
        most_ns: int | None,
    ) -> None:
        self._classes, self._options, self._table = classes, options, table
        self._most_ns = most_ns or MOST_NS

    @cached_property
    def _least(self) -> Alike:
        model, highest = self._programme(), self._highest()
        peak = model.programme.new_int_var(self._table.fixed_bytes, highest, "peak")
        self._hold(model, peak)
        model.programme.minimize(peak)
        found = self._solved(model)
        if found is None or found.lower_bound < found.extra_ns:
            raise DeadlineError(
                f"the least peak was not proven within {self._most_ns / NS_PER_S:g} s; give a "
                "larger graph_ns"
            )
        return found

    def floor(self) -> Alike:
        """Give the choice with the least peak."""
        return self._least

    def solve(self, budget_bytes: int) -> Alike:
        """Give the cheapest choice within a budget that is not below the floor."""
        model = self._programme()
        self._hold(model, budget_bytes)
        model.programme.minimize(
            sum(
                self._options[place][index].extra_ns * model.chosen[key, index]
                for place, key in enumerate(self._classes)
                for index in range(len(self._options[place]))
            )
        )
        for (key, index), variable in model.chosen.items():
            place = self._classes.index(key)
            model.programme.add_hint(variable, int(self._least.options[place] == index))
        return self._solved(model) or replace(self._least, lower_bound=0)

    def _programme(self) -> _Model:
        cp_model = _cp_model()
        programme = cp_model.CpModel()
        chosen = {}
        for key in dict.fromkeys(self._classes):
            rows = self._options[self._classes.index(key)]
            own = [programme.new_bool_var("") for _ in rows]
            programme.add_exactly_one(own)
            chosen.update({(key, index): variable for index, variable in enumerate(own)})
        return _Model(programme, chosen)

    def _hold(self, model: _Model, limit: Any) -> None:
        """Hold every moment of every option that is chosen to a limit."""
        before: Any = 0
        for place, key in enumerate(self._classes):
            start = int(self._table.offsets[place])
            for index in range(len(self._options[place])):
                need = self._need(place, start + index)
                variable = model.chosen[key, index]
                model.programme.add(before + need <= limit).only_enforce_if(variable)
            before = before + sum(
                row.retained_bytes * model.chosen[key, index]
                for index, row in enumerate(self._options[place])
            )

    def _need(self, place: int, row: int) -> int:
        forward = self._table.forward_base[place] + self._table.forward_peak[row]
        backward = self._table.backward_base[place] + self._table.backward_peak[row]
        return int(max(forward, backward))

    def _highest(self) -> int:
        retained = sum(max(row.retained_bytes for row in rows) for rows in self._options)
        needs = [
            self._need(place, int(self._table.offsets[place]) + index)
            for place, rows in enumerate(self._options)
            for index in range(len(rows))
        ]
        return retained + max(*needs, self._table.fixed_bytes)

    def _solved(self, model: _Model) -> Alike | None:
        cp_model = _cp_model()
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = self._most_ns / NS_PER_S
        solver.parameters.num_workers = 1  # several race, and then answers differ from call to call
        status = solver.solve(model.programme)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        options = tuple(
            next(
                index
                for index in range(len(self._options[place]))
                if solver.boolean_value(model.chosen[key, index])
            )
            for place, key in enumerate(self._classes)
        )
        rows = [rows[index] for rows, index in zip(self._options, options, strict=True)]
        extra = sum(row.extra_ns for row in rows)
        proven = status == cp_model.OPTIMAL
        bound = extra if proven else min(extra - 1, max(0, int(solver.best_objective_bound)))
        return Alike(options, extra, self._peak(options), bound)

    def _peak(self, options: Sequence[int]) -> int:
        before, highest = 0, self._table.fixed_bytes
        for place, index in enumerate(options):
            need = self._need(place, int(self._table.offsets[place]) + index)
            highest = max(highest, before + need)
            before += self._options[place][index].retained_bytes
        return highest


def _cp_model() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as missing:
        raise MissingExtraError(
            "constraints.equal_treatment: so many choices are solved for by OR-Tools, which is not "
            "installed; pip install 'haversack[server,graph]'"
        ) from missing
    return cp_model
