"""A plan for a described model: save or recompute each layer, under the peak of its timeline.

Rungs 0 and 2 of the ladder, for each class of equal ranks: the floor, then the ceiling dynamic
programme, or its form with microbatches in flight. The predicted peak is read off the same timeline
that Estimate lays out for the plan's explicit actions.
"""

from collections.abc import Sequence
from dataclasses import replace

from haversack.basis import Basis
from haversack.plan import (
    BudgetConversion,
    FrontierPoint,
    Plan,
    PlanRequest,
    PlanStatus,
    RankPlan,
    Rung,
)
from haversack.run import BytesKind
from haversack.units import format_bytes
from haversack_server.memory.model_run import ModelRun, model_run
from haversack_server.memory.unmodelled import unplanned
from haversack_server.plan import budget
from haversack_server.plan.alike_stages import alike, rank_alike
from haversack_server.plan.frontiers import budgets_of, reading_of
from haversack_server.plan.places import peak_at
from haversack_server.plan.relief import relief
from haversack_server.plan.solving import Solving
from haversack_server.plan.stages import (
    Planned,
    Stage,
    actions_of,
    asked_for,
    highest_floor,
    planned,
    stages_of,
)
from haversack_server.plan.stages_beside import baselines_of

NOT_MODELLED = (
    "selective recomputation inside a layer, and segments of several layers",
    "workspaces of kernels beyond the kernel profile's, and the allocator's fragmentation",
)


def plan_model(request: PlanRequest, solving: Solving) -> Plan:
    """Choose for each layer whether it saves or recomputes, at least extra time."""
    run = model_run(request)
    if left_out := unplanned(request, run.degrees):
        return not_sought(left_out)
    stages = asked_for(request, stages_of(request, run, solving))
    conversion = budget.convert(request, run)
    left = conversion.allocated_bytes
    floor_bytes, floor_at = highest_floor(stages)
    common = Plan(
        budget=conversion,
        floor_bytes=floor_bytes,
        floor_at=floor_at,
        frontier=_frontier(request, stages, floor_bytes),
        baselines=baselines_of(run, stages, left),
        assumptions=(
            *(each for each in run.assumptions if not each.startswith("recompute:")),
            *budget.assumed(request),
            *(f"not validated: {each}" for each in run.not_validated),
        ),
        ignored_inputs=run.ignored_inputs,
        not_modelled=NOT_MODELLED,
        basis=Basis.ANALYTIC,
    )
    if request.constraints is not None and request.constraints.equal_treatment:
        return _alike(common, request, run, stages, solving)
    if floor_bytes > left:
        return _infeasible(common, request, conversion, solving)
    return _feasible(common, run, planned(stages, left))


def not_sought(left_out: tuple[str, ...]) -> Plan:
    """Give no plan where an axis that divides everything is not modelled, as Estimate does."""
    return Plan(reason=left_out[0], solver="none", not_modelled=left_out, basis=Basis.ANALYTIC)


def _feasible(common: Plan, run: ModelRun, plans: Sequence[Planned]) -> Plan:
    """Write the choices as a plan; figures are added up from the chains, not from a search."""
    fullest = max(plans, key=lambda each: each.line.peak.allocated_bytes)
    slowest = max(plans, key=lambda each: each.choice.extra_ns)
    extra, step_ns = slowest.choice.extra_ns, slowest.stage.chain.step_ns
    gap = extra - max(each.choice.lower_bound for each in plans)
    peak_bytes = fullest.line.peak.allocated_bytes
    actions = actions_of(run, plans)
    recomputed = sum(action.option != "save" for action in actions)
    left = common.budget.allocated_bytes if common.budget else 0
    return replace(
        common,
        status=PlanStatus.OPTIMAL if gap == 0 else PlanStatus.FEASIBLE,
        actions=actions,
        total_gain=slowest.all_recomputed_ns - extra,
        total_size_bytes=fullest.retained_bytes,
        extra_ns=extra,
        extra_share=extra / step_ns if step_ns else None,
        predicted_peak_bytes=peak_bytes,
        peak_at=peak_at(fullest.stage.chain, fullest.line),
        lower_bound=extra - gap,
        gap=gap,
        rung=Rung.CEILING,
        ranks=_ranks(plans),
        reading=reading_of(common.frontier, left, extra),
        solver=_solver(slowest),
        solved_by=slowest.choice.solved_by,
        reason=(
            f"{recomputed} of {len(actions)} blocks are recomputed; the expected peak of "
            f"{format_bytes(peak_bytes)} is within {format_bytes(left)}"
        ),
    )


def _solver(slowest: Planned) -> str:
    if slowest.stage.chain.pipeline.stages > 1:
        return "ceilings with microbatches in flight, by ranges of what is retained"
    how = slowest.choice.solved_by
    return f"ceiling dynamic programme, Pareto {how.algorithm if how else 'lists'}"


def _ranks(plans: Sequence[Planned]) -> tuple[RankPlan, ...]:
    """Give the plan of each class; none where all ranks are equal."""
    if plans[0].stage.chain.pipeline.stages == 1:
        return ()
    return tuple(
        RankPlan(
            name=each.stage.ranks.name,
            first_rank=each.stage.ranks.first_rank,
            rank_count=each.stage.ranks.rank_count,
            status=PlanStatus.OPTIMAL if each.choice.proven else PlanStatus.FEASIBLE,
            predicted_peak_bytes=each.line.peak.allocated_bytes,
            peak_at=peak_at(each.stage.chain, each.line),
            floor_bytes=each.stage.floor_bytes,
            extra_ns=each.choice.extra_ns,
            lower_bound=each.choice.lower_bound,
            recomputed_count=each.recomputed_count,
        )
        for each in plans
    )


def _alike(
    common: Plan,
    request: PlanRequest,
    run: ModelRun,
    stages: Sequence[Stage],
    solving: Solving,
) -> Plan:
    """Plan under equal treatment, and say what it costs beside the plan without it."""
    assert common.budget is not None
    left = common.budget.allocated_bytes
    found = alike(stages)
    least = found.floor()
    floor_bytes, floor_at = rank_alike(stages, least)
    budgets = budgets_of(request, floor_bytes, max(each.everything_bytes() for each in stages))
    points = tuple(_point(each, found.planned(each)) for each in budgets)
    conversion = common.budget
    common = replace(common, floor_bytes=floor_bytes, floor_at=floor_at, frontier=points)
    if least.peak_bytes > left:
        return _infeasible(common, request, conversion, solving)
    free = max(each.choice.extra_ns for each in planned(stages, left))
    answer = _feasible(common, run, found.planned(left))
    return replace(
        answer,
        solver="equal treatment, every choice by class of blocks",
        solved_by=None,
        equal_treatment_ns=answer.extra_ns - free,
    )


def _infeasible(
    common: Plan, request: PlanRequest, conversion: BudgetConversion, solving: Solving
) -> Plan:
    at = common.floor_at
    assert at is not None
    largest = " and ".join(at.largest_terms[:2])
    return replace(
        common,
        status=PlanStatus.INFEASIBLE,
        relief=relief(request, common.floor_bytes, solving),
        reading=reading_of(common.frontier, conversion.allocated_bytes, None),
        solver="floor by lists of retained and peak",
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
    request: PlanRequest, stages: Sequence[Stage], floor_bytes: int
) -> tuple[FrontierPoint, ...]:
    """Solve for budgets spread evenly from the floor to the peak with everything saved."""
    everything = max(stage.everything_bytes() for stage in stages)
    budgets = budgets_of(request, floor_bytes, everything)
    columns = zip(*(stage.search.frontier(budgets) for stage in stages), strict=True)
    return tuple(
        _point(each, [Planned(*pair) for pair in zip(stages, choices, strict=True)])
        for each, choices in zip(budgets, columns, strict=True)
    )


def _point(budget_bytes: int, plans: Sequence[Planned]) -> FrontierPoint:
    extra = max(each.choice.extra_ns for each in plans)
    return FrontierPoint(
        budget_bytes=budget_bytes,
        peak_bytes=max(each.stage.search.peak(each.choice.options) for each in plans),
        cost=extra,
        saved_count=sum(each.saved_count * len(each.stage.ranks.stages) for each in plans),
        proven=extra == max(each.choice.lower_bound for each in plans),
    )
