"""One option for each block as a programme of OR-Tools' CP-SAT, with bounded work.

A variable per class of blocks and option, one per skip tensor and number of its keepers passed: it
may be 1 where none of these keeps the tensor. Each block has a ceiling in forward and one in
backward. Work is counted by the solver and not by a clock, so that a request has one answer.
Knows no request.
"""

import contextlib
import threading
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from haversack.errors import DeadlineError, InternalError, MissingExtraError
from haversack_server.memory.chain import Option
from haversack_server.plan.ceiling import Tables
from haversack_server.plan.skips import Skip
from haversack_server.plan.solving import Cancel

NS_PER_S = 10**9
WORK_NS = 10 * NS_PER_S
"""Work of one solve where the request does not say."""
EXTRA = "OR-Tools, which is not installed; pip install 'haversack[server,graph]'"
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Solved:
    """What a solve found: options, or None; and what no choice is below."""

    options: tuple[int, ...] | None
    lower_bound: int
    proven: bool


def is_there() -> bool:
    """Whether OR-Tools is installed."""
    try:
        return find_spec("ortools.sat.python") is not None
    except (ImportError, ValueError):  # no ortools, or one that is hidden
        return False


def unsettled(what: str, work_ns: int) -> DeadlineError:
    """Say that the work of a solve was used up."""
    return DeadlineError(
        f"{what} was not settled by work of {work_ns / NS_PER_S:g} s; give a larger graph_ns"
    )


class Programme:
    """Choices that treat the blocks of a class alike; ``classes`` names that of each block."""

    def __init__(
        self,
        classes: Sequence[Hashable],
        options: Sequence[Sequence[Option]],
        table: Tables,
        skips: Sequence[Skip] = (),
    ) -> None:
        self._cp_model = _cp_model()
        self._model = self._cp_model.CpModel()
        self._classes, self._options, self._table = classes, options, table
        self._skips = skips
        self._chosen: dict[Hashable, list[Any]] = {}
        for key, rows in zip(classes, options, strict=True):
            if key not in self._chosen:
                self._chosen[key] = [self._model.new_bool_var("") for _ in rows]
                self._model.add_exactly_one(self._chosen[key])
        self._free = [self._freed(skip) for skip in skips]

    def _row(self, place: int) -> list[Any]:
        return self._chosen[self._classes[place]]

    def _freed(self, skip: Skip) -> list[Any]:
        """Give whether a tensor is freed, by how many of its keepers have been passed."""
        found: list[Any] = [1]
        for block, keeping in skip.keepers:
            free = self._model.new_bool_var("")
            self._model.add(free <= found[-1])
            row = self._row(block)
            self._model.add(free + sum(row[index] for index in keeping) <= 1)
            found.append(free)
        return found

    def hold(self, limit: Any) -> None:
        """Hold every moment to a limit: bytes, or a variable."""
        before: Any = 0
        for place, rows in enumerate(self._options):
            for forward in (True, False):
                own = self._own(place, forward)
                self._model.add(before + own - self._spared(place, forward) <= limit)
            before = before + self._sum(place, [row.retained_bytes for row in rows])

    def least_peak(self, least: int, most: int) -> None:
        """Ask for the least peak, which lies between two."""
        peak = self._model.new_int_var(least, most, "peak")
        self.hold(peak)
        self._model.minimize(peak)

    def least_extra(self, least: int, most: int) -> None:
        """Ask for the least extra time, which lies between two."""
        extra: Any = sum(
            self._sum(place, [row.extra_ns for row in rows])
            for place, rows in enumerate(self._options)
        )
        self._model.add_linear_constraint(extra, least, most)
        self._model.minimize(extra)

    def start_from(self, options: Sequence[int]) -> None:
        """Name a choice to look at first."""
        for place, index in enumerate(options):
            if self._classes.index(self._classes[place]) == place:
                for other, variable in enumerate(self._row(place)):
                    self._model.add_hint(variable, int(other == index))
        for skip, free in zip(self._skips, self._free, strict=True):
            first = skip.first_keeper(options)
            for (block, _), variable in zip(skip.keepers, free[1:], strict=True):
                self._model.add_hint(variable, int(block < first))

    def _sum(self, place: int, values: Sequence[int]) -> Any:
        return sum(
            value * variable
            for value, variable in zip(values, self._row(place), strict=True)
            if value
        )

    def _own(self, place: int, forward: bool) -> Any:
        table, first = self._table, int(self._table.offsets[place])
        peaks = table.forward_peak if forward else table.backward_peak
        bases = table.forward_base if forward else table.backward_base
        last = first + len(self._options[place])
        return self._sum(place, [int(each) + int(bases[place]) for each in peaks[first:last]])

    def _spared(self, place: int, forward: bool) -> Any:
        found: Any = 0
        for skip, free in zip(self._skips, self._free, strict=True):
            if (skip.read_until if forward else skip.maker) < place < skip.end:
                passed = sum(block <= place for block, _ in skip.keepers)
                found = found + skip.size_bytes * free[passed]
        return found

    def solved(self, work_ns: int, cancel: Cancel = None) -> Solved:
        """Solve within an amount of work, about so many nanoseconds of one core.

        Raises InternalError for a programme that CP-SAT does not take, as one of too large numbers.
        """
        solver = self._cp_model.CpSolver()
        solver.parameters.max_deterministic_time = work_ns / NS_PER_S
        solver.parameters.num_workers = 1  # several race, and then answers differ from call to call
        with _stopping(solver, cancel):
            status = solver.solve(self._model)
        if status == self._cp_model.MODEL_INVALID:  # no work would settle it
            raise InternalError(f"a programme that CP-SAT calls invalid: {self._model.validate()}")
        if status == self._cp_model.INFEASIBLE:
            return Solved(None, 0, proven=True)
        bound = max(0, int(solver.best_objective_bound))
        if status not in (self._cp_model.OPTIMAL, self._cp_model.FEASIBLE):
            return Solved(None, bound, proven=False)
        options = tuple(
            next(i for i, each in enumerate(self._row(place)) if solver.boolean_value(each))
            for place in range(len(self._options))
        )
        return Solved(options, bound, status == self._cp_model.OPTIMAL)


@contextlib.contextmanager
def _stopping(solver: Any, cancel: Cancel) -> Iterator[None]:
    """Stop a solve once ``cancel[0]`` is set, and raise the kernels' SolveCancelled."""
    if cancel is None:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_S):
            if cancel[0]:
                solver.stop_search()

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
    if cancel[0]:
        from haversack_kernels.errors import SolveCancelled

        raise SolveCancelled(0)


def _cp_model() -> Any:
    try:
        from ortools.sat.python import cp_model
    except ImportError as missing:
        raise MissingExtraError(
            f"constraints.equal_treatment: so many choices are solved for by {EXTRA}"
        ) from missing
    return cp_model
