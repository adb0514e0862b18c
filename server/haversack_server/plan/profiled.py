"""A plan for a profiled model: options and segments for its blocks, under the peak of its step.

The chain, its options and what lies between its blocks are the profile's; states are parameters,
gradients and the optimizer's moments. The rungs are in ``ladder``.
"""

from dataclasses import replace

from haversack.basis import Basis
from haversack.plan import BudgetConversion, FrontierPoint, Plan, PlanRequest, PlanStatus, Rung
from haversack.profile import Profile
from haversack.spread import spread_of
from haversack.units import format_bytes
from haversack_server.plan import (
    limits,
    profiled_optimizer,
    profiled_request,
    profiled_settings,
    profiled_types,
    purity,
)
from haversack_server.plan.constraints import allowed
from haversack_server.plan.frontiers import budgets_of, reading_of
from haversack_server.plan.ladder import Found, Ladder
from haversack_server.plan.profiled_actions import actions_of, saved_count
from haversack_server.plan.profiled_beside import EqualBlocks, baselines_of
from haversack_server.plan.profiled_chain import ProfiledChain, chain_of, options_of
from haversack_server.plan.profiled_peaks import moments_of, peak_of
from haversack_server.plan.profiled_relief import relief
from haversack_server.plan.profiled_shards import on_one_rank
from haversack_server.plan.profiled_step import counted_step
from haversack_server.plan.skipping import Skipping
from haversack_server.plan.solving import Solving


def plan_profile(request: PlanRequest, solving: Solving) -> Plan:
    """Choose how to run each block of the profile, at least extra time."""
    profile = request.profile
    assert profile is not None
    profiled_request.check(request, profile)
    chain, said = _chain(request, profile)
    conversion = profiled_request.budget_of(request)
    left = conversion.allocated_bytes
    ladder, way = _ways(request, chain, solving)
    floor_bytes, least = way.floor()
    least_bytes, floor_at = peak_of(chain, least)
    profiled_request.check_least(least_bytes)
    common = Plan(
        budget=conversion,
        floor_bytes=floor_bytes,
        floor_at=floor_at,
        frontier=_frontier(request, ladder, way, floor_bytes),
        baselines=baselines_of(ladder, left),
        assumptions=(
            *said,
            *profiled_request.assumed(request),
            *profile.notes,
            *purity.assumed(profile),
            *way.assumed(),
        ),
        ignored_inputs=profiled_settings.ignored(request),
        not_modelled=profile.not_profiled,
        basis=profile.basis or Basis.PROFILED,
        model_fingerprint=profile.model_fingerprint,
        parallelism=request.parallelism if spread_of(request.parallelism).ranks > 1 else None,
        counted=counted_step(request.training, profile),
        precision=profile.precision,
        reduce_type=profiled_types.reduce_type_of(profile, request.training),
    )
    if floor_bytes > left:
        if isinstance(way, Skipping):
            way.check_infeasible(left)
        helps = relief(request, floor_bytes, lambda changed: _floor(changed, solving))
        return replace(_infeasible(common, conversion), relief=helps)
    answer = _feasible(common, profile, chain, way.solve(left))
    if way is ladder:
        return answer
    return replace(answer, equal_treatment_ns=answer.extra_ns - ladder.solve(left).extra_ns)


def _ways(
    request: PlanRequest, chain: ProfiledChain, solving: Solving
) -> tuple[Ladder, Ladder | EqualBlocks]:
    """Give the ladder, and the way that the request asks for: the same, or equal treatment."""
    assert request.profile is not None
    ladder = _ladder(request, chain, solving)
    if request.constraints is None or not request.constraints.equal_treatment:
        return ladder, ladder
    return ladder, EqualBlocks(request.profile, ladder, request.graph_ns)


def _ladder(request: PlanRequest, chain: ProfiledChain, solving: Solving) -> Ladder:
    state_limit = request.state_limit or limits.STATE_LIMIT
    if chain.skips:
        return Skipping(chain, state_limit, solving, request.graph_ns)
    return Ladder(chain, state_limit, solving)


def _floor(request: PlanRequest, solving: Solving) -> int:
    assert request.profile is not None
    chain, _ = _chain(request, request.profile)
    return _ways(request, chain, solving)[1].floor()[0]


def _chain(request: PlanRequest, profile: Profile) -> tuple[ProfiledChain, tuple[str, ...]]:
    """Put blocks, their open options and the states together; say what was assumed of these."""
    moments_bytes, said = profiled_optimizer.moments_bytes(request.training, profile)
    step_bytes, said_of_step = profiled_optimizer.step_bytes(request.training, profile)
    purity.check_must_recompute(profile, request.constraints)
    chain = chain_of(
        profile,
        allowed(purity.pure(profile, options_of(profile)), request.constraints),
        moments_bytes=moments_bytes,
        accumulation=request.training.accumulation or 1,
        step_bytes=step_bytes,
    )
    chain = on_one_rank(
        chain,
        profile,
        request.parallelism,
        recipe=profiled_types.recipe_of(profile, request.training),
        moments_bytes=moments_bytes,
        accumulation=request.training.accumulation or 1,
    )
    profiled_request.check_bounds(chain)
    if request.constraints is not None and request.constraints.without_segments:
        chain = replace(chain, inside=(None,) * len(chain.names))
    return chain, (*said, *said_of_step)


def _feasible(common: Plan, profile: Profile, chain: ProfiledChain, found: Found) -> Plan:
    actions = actions_of(profile, chain, found.pieces)
    gap = found.extra_ns - found.lower_bound
    peak_bytes, at = peak_of(chain, found.pieces)
    changed = sum(action.option != "save" for action in actions)
    segments = sum(piece.option is None for piece in found.pieces)
    together = f", {segments} segments among them" if segments else ""
    budget = common.budget.allocated_bytes if common.budget else 0
    most = sum(max(each.extra_ns for each in rows) for rows in chain.options)
    return replace(
        common,
        status=PlanStatus.OPTIMAL if gap == 0 else PlanStatus.FEASIBLE,
        actions=actions,
        total_gain=max(0, most - found.extra_ns),
        total_size_bytes=sum(piece.retained_bytes for piece in found.pieces),
        extra_ns=found.extra_ns,
        predicted_peak_bytes=peak_bytes,
        peak_at=at,
        moments=moments_of(chain, found.pieces),
        lower_bound=found.lower_bound,
        gap=gap,
        rung=found.rung,
        reading=reading_of(common.frontier, budget, found.extra_ns),
        solver=found.solver,
        solved_by=found.solved_by,
        reason=(
            f"{changed} of {len(actions)} parts are recomputed, wholly or in part{together}; the "
            f"profiled peak of {format_bytes(peak_bytes)} is within {format_bytes(budget)}"
        ),
    )


def _infeasible(common: Plan, conversion: BudgetConversion) -> Plan:
    at = common.floor_at
    assert at is not None
    return replace(
        common,
        status=PlanStatus.INFEASIBLE,
        reading=reading_of(common.frontier, conversion.allocated_bytes, None),
        solver="floor by lists of retained and peak",
        rung=Rung.FLOOR,
        reason=(
            f"no plan holds {format_bytes(conversion.allocated_bytes)}: the least peak is "
            f"{format_bytes(common.floor_bytes)} at {at.moment}, where the largest terms are "
            f"{' and '.join(at.largest_terms[:2])}"
        ),
    )


def _frontier(
    request: PlanRequest, ladder: Ladder, way: Ladder | EqualBlocks, floor_bytes: int
) -> tuple[FrontierPoint, ...]:
    chain = ladder.chain
    saved = ladder.of_options([0] * len(chain.options))
    budgets = budgets_of(request, floor_bytes, peak_of(chain, saved)[0])
    if not budgets:
        return ()
    return tuple(
        FrontierPoint(
            budget_bytes=each,
            peak_bytes=peak_of(chain, found.pieces)[0],
            cost=found.extra_ns,
            saved_count=saved_count(chain, found.pieces),
            proven=found.proven,
        )
        for each, found in zip(budgets, way.frontier(budgets), strict=True)
    )
