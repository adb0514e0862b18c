"""Rung 1: independent candidates, of which a budget lets some be saved; and the mirror form.

A 0/1 knapsack on exact bytes. A sum of sizes is not a peak, so no peak is predicted. The mirror
form (free at least so much at least cost) is the complement: what is not recomputed is saved.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from haversack.basis import Basis
from haversack.errors import InvalidRequestError
from haversack.plan import BudgetConversion, FrontierPoint, Plan, PlanRequest, PlanStatus, Rung
from haversack.run import Advice, Budget
from haversack.units import INT64_MAX, format_bytes
from haversack_server.memory.unused import unused
from haversack_server.plan.limits import FRONTIER_POINTS, STATE_LIMIT, assumed
from haversack_server.plan.solving import Solving, solved_by

if TYPE_CHECKING:
    from haversack_kernels.dispatch import Explanation
    from haversack_kernels.knapsack import Selection

_CUT = "extra_ns is cut at 2^63-1: the gains that are not saved sum to more"


@dataclass(frozen=True, slots=True)
class _Problem:
    """Columns to choose from, what is present whatever is chosen, and the budget, in bytes."""

    sizes: tuple[int, ...]
    gains: tuple[int, ...]
    fixed_bytes: int
    budget_bytes: int
    path: str

    @property
    def capacity(self) -> int:
        """Bytes that the budget leaves for the chosen; negative if not even the fixed fit."""
        return self.budget_bytes - self.fixed_bytes


def plan_candidates(request: PlanRequest, solving: Solving) -> Plan:
    """Save the candidates of the largest total gain that the budget holds."""
    assert request.candidates is not None
    assert request.budget is not None
    columns = request.candidates
    problem = _Problem(
        columns.size_bytes,
        columns.gain,
        columns.fixed_bytes,
        request.budget.bytes,
        "candidates.gain",
    )
    return _answer(request, request.budget, problem, solving)


def plan_recompute_candidates(request: PlanRequest, solving: Solving) -> Plan:
    """Recompute the candidates of the least total time that free enough."""
    assert request.recompute_candidates is not None
    assert request.budget is not None
    columns = request.recompute_candidates
    freeable = sum(columns.freed_bytes)
    used = freeable if columns.used_bytes is None else columns.used_bytes
    problem = _Problem(
        columns.freed_bytes,
        columns.added_ns,
        used - freeable,
        request.budget.bytes,
        "recompute_candidates.added_ns",
    )
    return _answer(request, request.budget, problem, solving)


def _answer(request: PlanRequest, budget: Budget, problem: _Problem, solving: Solving) -> Plan:
    steps = (f"{problem.fixed_bytes} bytes are present whatever is saved",)
    conversion = BudgetConversion(given=budget, allocated_bytes=budget.bytes, steps=steps)
    common = Plan(
        budget=conversion,
        floor_bytes=problem.fixed_bytes,
        basis=Basis.ANALYTIC,
        assumptions=(*_assumed(request), *assumed(request)),
        ignored_inputs=unused(request, training=frozenset(), parallelism=frozenset(), device=False),
        not_modelled=("the peak: a sum of saved bytes is not a peak; send a model for one",),
    )
    if problem.capacity < 0:
        return _infeasible(common, problem)
    state_limit = request.state_limit or STATE_LIMIT
    selection, why = _solve(problem, problem.capacity, state_limit, solving.keywords())
    answer = _feasible(common, problem, selection, why)
    return replace(answer, frontier=_frontier(request, problem, state_limit, solving))


def _assumed(request: PlanRequest) -> tuple[str, ...]:
    mirror = request.recompute_candidates
    if mirror is None or mirror.used_bytes is not None:
        return ()
    return ("used_bytes: the sum of freed_bytes, nothing else is counted",)


def _solve(
    problem: _Problem, capacity: int, state_limit: int, keywords: dict[str, Any]
) -> "tuple[Selection, Explanation]":
    import numpy as np

    from haversack_kernels import dispatch

    sizes = np.array(problem.sizes, dtype=np.int64)
    gains = np.array(problem.gains, dtype=np.int64)
    try:
        return dispatch.solve_knapsack(sizes, gains, capacity, state_limit=state_limit, **keywords)
    except OverflowError as overflow:
        raise InvalidRequestError(
            "the gains of the best plan sum to more than 2^63-1; use a coarser unit",
            field=problem.path,
        ) from overflow
    except ValueError as beyond:
        raise InvalidRequestError(str(beyond), field="budget.bytes") from beyond


def _feasible(common: Plan, problem: _Problem, selection: "Selection", why: "Explanation") -> Plan:
    """Add bytes and gains up from the request itself, never from what a kernel made of them."""
    saved = tuple(index for index, kept in enumerate(selection.mask.tolist()) if kept)
    gain = sum(problem.gains[index] for index in saved)
    size = sum(problem.sizes[index] for index in saved)
    cost = sum(problem.gains) - gain
    gap = 0 if selection.proven else selection.upper_bound - gain
    status = PlanStatus.OPTIMAL if gap == 0 else PlanStatus.FEASIBLE
    return replace(
        common,
        status=status,
        saved=saved,
        total_gain=gain,
        total_size_bytes=size,
        extra_ns=min(cost, INT64_MAX),
        lower_bound=min(cost - gap, INT64_MAX),
        gap=gap,
        solver=f"knapsack {why.algorithm}",
        solved_by=solved_by(why),
        assumptions=common.assumptions if cost <= INT64_MAX else (_CUT, *common.assumptions),
        rung=Rung.INDEPENDENT,
        reason=(
            f"{len(saved)} of {len(problem.sizes)} are saved, {format_bytes(size)} of "
            f"{format_bytes(problem.capacity)}{_beside(problem)}"
        ),
    )


def _beside(problem: _Problem) -> str:
    """Say what is taken off the budget, where something is."""
    if not problem.fixed_bytes:
        return ""
    fixed, budget = format_bytes(problem.fixed_bytes), format_bytes(problem.budget_bytes)
    return f", beside {fixed} that are fixed under the budget of {budget}"


def _infeasible(common: Plan, problem: _Problem) -> Plan:
    short = -problem.capacity
    return replace(
        common,
        status=PlanStatus.INFEASIBLE,
        relief=(
            Advice(
                change=f"a budget of {problem.fixed_bytes} bytes",
                delta_bytes=-short,
                cost="more memory, and every candidate is recomputed",
            ),
        ),
        solver="floor",
        rung=Rung.FLOOR,
        reason=(
            f"{problem.fixed_bytes} bytes are present whatever is saved, {short} more than the "
            f"budget of {problem.budget_bytes}"
        ),
    )


def _frontier(
    request: PlanRequest, problem: _Problem, state_limit: int, solving: Solving
) -> tuple[FrontierPoint, ...]:
    """Solve for budgets spread evenly up to the one that saves everything, as far as they go.

    By the core alone: a point that it does not prove says so, and costs no dense programme.
    """
    points = FRONTIER_POINTS if request.frontier_points is None else request.frontier_points
    # As far as a budget can be named.
    everything = min(sum(problem.sizes), INT64_MAX - problem.fixed_bytes)
    total_gain = sum(problem.gains)
    core_alone = {**solving.keywords(), "devices": ()}
    capacities = sorted({everything * (step + 1) // points for step in range(points)})
    made = []
    for capacity in capacities:
        try:
            selection, _ = _solve(problem, capacity, state_limit, core_alone)
        except InvalidRequestError:
            break  # from here on the best gain is above 2^63-1: budgets that cannot be answered
        chosen = selection.mask.tolist()
        size = sum(size for size, kept in zip(problem.sizes, chosen, strict=True) if kept)
        made.append(
            FrontierPoint(
                budget_bytes=problem.fixed_bytes + capacity,
                peak_bytes=problem.fixed_bytes + size,
                cost=min(total_gain - selection.gain, INT64_MAX),
                saved_count=sum(chosen),
                proven=selection.proven,
            )
        )
    return tuple(made)
