"""A plan for a described model: save or recompute each layer, under the peak of its timeline.

Rungs 0 and 2 of the ladder: the floor, then the ceiling dynamic programme. The predicted peak is
read off the same timeline that Estimate lays out for the plan's explicit actions.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from haversack.basis import Basis
from haversack.plan import (
    BudgetConversion,
    FrontierPoint,
    PeakAt,
    Plan,
    PlanRequest,
    PlanStatus,
    Rung,
)
from haversack.run import BlockAction, BytesKind
from haversack.units import format_bytes
from haversack_server.memory.bounds import check_bounds
from haversack_server.memory.choices import whole_layers
from haversack_server.memory.ledger import NAMES
from haversack_server.memory.model_run import ModelRun, model_run
from haversack_server.memory.timeline import Column, Timeline, TimelineMoment, timeline
from haversack_server.memory.unmodelled import unplanned
from haversack_server.plan import budget, ceiling
from haversack_server.plan.ceiling import Tables
from haversack_server.plan.constraints import constrained
from haversack_server.plan.limits import FRONTIER_POINTS, STATE_LIMIT
from haversack_server.plan.relief import relief
from haversack_server.plan.solving import Cancel, Solving, solved_by

if TYPE_CHECKING:
    from haversack_kernels.ceiling import Choice

NOT_MODELLED = (
    "selective recomputation inside a layer, and segments of several layers",
    "workspaces of kernels beyond the kernel profile's, and the allocator's fragmentation",
)


def plan_model(request: PlanRequest, solving: Solving) -> Plan:
    """Choose for each layer whether it saves or recomputes, at least extra time."""
    run = model_run(request)
    if left_out := unplanned(request, run.degrees):
        return not_sought(left_out)
    check_bounds(run.chain)
    run = replace(run, chain=constrained(whole_layers(run.chain), request.constraints))
    conversion = budget.convert(request, run)
    table = ceiling.tables(run.chain)
    least = ceiling.floor(table, solving.cancel)
    common = Plan(
        budget=conversion,
        floor_bytes=least.peak_bytes,
        floor_at=_peak_at(run, timeline(run.chain, least.choice)),
        frontier=_frontier(request, run, table, least, solving.cancel),
        assumptions=(
            *(each for each in run.assumptions if not each.startswith("recompute:")),
            *budget.assumed(request),
        ),
        ignored_inputs=run.ignored_inputs,
        not_modelled=NOT_MODELLED,
        basis=Basis.ANALYTIC,
    )
    if least.peak_bytes > conversion.allocated_bytes:
        return _infeasible(common, request, conversion, solving.cancel)
    state_limit = request.state_limit or STATE_LIMIT
    choice, why = ceiling.solve(
        table, conversion.allocated_bytes, state_limit=state_limit, solving=solving
    )
    return replace(
        _feasible(common, run, table, choice),
        solver=f"ceiling dynamic programme, Pareto {why.algorithm}",
        solved_by=solved_by(why),
    )


def not_sought(left_out: tuple[str, ...]) -> Plan:
    """Give no plan where an axis that divides everything is not modelled, as Estimate does."""
    return Plan(reason=left_out[0], solver="none", not_modelled=left_out, basis=Basis.ANALYTIC)


def _feasible(common: Plan, run: ModelRun, table: Tables, choice: "Choice") -> Plan:
    """Write the choice as a plan; its figures are added up from the chain, not from the kernel."""
    chosen = ceiling.local(table, choice.options)
    line = timeline(run.chain, chosen)
    options = [block.options[index] for block, index in zip(run.chain.blocks, chosen, strict=True)]
    extra = sum(option.extra_ns for option in options)
    gap = 0 if choice.proven else extra - choice.lower_bound
    recomputed = sum(option.name != "save" for option in options)
    return replace(
        common,
        status=PlanStatus.OPTIMAL if gap == 0 else PlanStatus.FEASIBLE,
        actions=_actions(run, chosen),
        total_gain=_all_recomputed_ns(run) - extra,
        total_size_bytes=sum(option.retained_bytes for option in options),
        extra_ns=extra,
        extra_share=extra / run.chain.step_ns if run.chain.step_ns else None,
        predicted_peak_bytes=line.peak.allocated_bytes,
        peak_at=_peak_at(run, line),
        lower_bound=extra - gap,
        gap=gap,
        rung=Rung.CEILING,
        reason=(
            f"{recomputed} of {len(options)} blocks are recomputed; the expected peak of "
            f"{format_bytes(line.peak.allocated_bytes)} is within "
            f"{format_bytes(common.budget.allocated_bytes if common.budget else 0)}"
        ),
    )


def _infeasible(
    common: Plan, request: PlanRequest, conversion: BudgetConversion, cancel: Cancel
) -> Plan:
    at = common.floor_at
    assert at is not None
    largest = " and ".join(at.largest_terms[:2])
    return replace(
        common,
        status=PlanStatus.INFEASIBLE,
        relief=relief(request, common.floor_bytes, cancel),
        solver="floor by halving the budget",
        rung=Rung.FLOOR,
        reason=(
            f"no plan holds {format_bytes(conversion.allocated_bytes)}{_left_of(conversion)}: "
            "the least peak is "
            f"{format_bytes(common.floor_bytes)} at {at.moment} ({at.phase}), where the largest "
            f"terms are {largest}"
        ),
    )


def _left_of(conversion: BudgetConversion) -> str:
    """Name the device bytes of which the allocated bytes are what is left."""
    given = conversion.given
    if given is None or given.kind is not BytesKind.DEVICE:
        return ""
    return f", what {format_bytes(given.bytes)} of device bytes leave for tensors"


def _frontier(
    request: PlanRequest, run: ModelRun, table: Tables, least: ceiling.Floor, cancel: Cancel
) -> tuple[FrontierPoint, ...]:
    """Solve for budgets spread evenly from the floor to the peak with everything saved."""
    points = FRONTIER_POINTS if request.frontier_points is None else request.frontier_points
    if points == 0:
        return ()
    everything = timeline(run.chain, [0] * len(run.chain.blocks)).peak.allocated_bytes
    span = max(0, everything - least.peak_bytes)
    steps = max(1, points - 1)
    budgets = sorted({least.peak_bytes + span * step // steps for step in range(points)})
    state_limit = request.state_limit or STATE_LIMIT
    choices = ceiling.frontier(table, budgets, state_limit=state_limit, cancel=cancel)
    return tuple(
        _point(run, table, each, choice) for each, choice in zip(budgets, choices, strict=True)
    )


def _point(run: ModelRun, table: Tables, budget_bytes: int, choice: "Choice") -> FrontierPoint:
    chosen = ceiling.local(table, choice.options)
    return FrontierPoint(
        budget_bytes=budget_bytes,
        peak_bytes=timeline(run.chain, chosen).peak.allocated_bytes,
        cost=choice.extra,
        saved_count=sum(action.option == "save" for action in _actions(run, chosen)),
        proven=choice.proven,
    )


def _actions(run: ModelRun, chosen: Sequence[int]) -> tuple[BlockAction, ...]:
    return tuple(
        BlockAction(block=block.name, option=block.options[index].name)
        for block, index in zip(run.chain.blocks, chosen, strict=True)
    )


def _all_recomputed_ns(run: ModelRun) -> int:
    return sum(max(option.extra_ns for option in block.options) for block in run.chain.blocks)


def _peak_at(run: ModelRun, line: Timeline) -> PeakAt:
    moment = line.peak
    block = run.chain.blocks[moment.block].name if moment.block >= 0 else ""
    return PeakAt(
        block=block, phase=moment.phase, moment=moment.name, largest_terms=_largest(moment)
    )


def _largest(moment: TimelineMoment) -> tuple[str, ...]:
    """The terms that make up most of a moment, the largest first."""
    sizes = sorted(zip(moment.bytes_by_column, Column, strict=True), reverse=True)
    return tuple(f"{NAMES[column]}: {format_bytes(size)}" for size, column in sizes[:4] if size)
