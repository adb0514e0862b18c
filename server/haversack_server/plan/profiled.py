"""A plan for a profiled model: one option for each block, under the peak that was profiled.

The chain, its options and what lies between its blocks are the profile's; states are parameters,
gradients and the optimizer's moments. A profile is of one rank as it ran, so nothing is sharded.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from haversack.basis import Basis
from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.parallelism import Parallelism
from haversack.plan import BudgetConversion, FrontierPoint, Plan, PlanRequest, PlanStatus, Rung
from haversack.profile import Profile
from haversack.run import BlockAction, BytesKind, Optimizer, Training
from haversack.units import format_bytes
from haversack_server.memory.bounds import MOST
from haversack_server.memory.optimizers.kinds import KINDS, Form
from haversack_server.plan import ceiling, limits
from haversack_server.plan.constraints import allowed
from haversack_server.plan.profiled_chain import ProfiledChain, chain_of, options_of
from haversack_server.plan.solving import Cancel, Solving, solved_by

if TYPE_CHECKING:
    from haversack_kernels.ceiling import Choice

_READ = ("optimizer", "accumulation")


def plan_profile(request: PlanRequest, solving: Solving) -> Plan:
    """Choose an option for each block of the profile, at least extra time."""
    profile = request.profile
    assert profile is not None
    _check(request, profile)
    moments, said = _moments_bytes(request.training, profile)
    chain = chain_of(
        profile,
        allowed(options_of(profile), request.constraints),
        moments_bytes=moments,
        accumulation=request.training.accumulation or 1,
    )
    _check_bounds(chain)
    conversion = _budget(request)
    table = chain.tables()
    least = ceiling.floor(table, solving.cancel)
    common = Plan(
        budget=conversion,
        floor_bytes=least.peak_bytes,
        floor_at=chain.peak(least.choice)[1],
        frontier=_frontier(request, chain, table, least, solving.cancel),
        assumptions=(*said, *_assumed(request)),
        ignored_inputs=_ignored(request.training),
        not_modelled=profile.not_profiled,
        basis=Basis.PROFILED,
    )
    if least.peak_bytes > conversion.allocated_bytes:
        return _infeasible(common, conversion)
    choice, why = ceiling.solve(
        table,
        conversion.allocated_bytes,
        state_limit=request.state_limit or limits.STATE_LIMIT,
        solving=solving,
    )
    return replace(
        _feasible(common, profile, chain, ceiling.local(table, choice.options), choice),
        solver=f"ceiling dynamic programme, Pareto {why.algorithm}",
        solved_by=solved_by(why),
    )


def _check(request: PlanRequest, profile: Profile) -> None:
    if not profile.blocks:
        raise InvalidRequestError("the profile has no blocks; profile a model", field="profile")
    for place, block in enumerate(profile.blocks):
        if not profile.tables[block.table].option:
            raise InvalidRequestError(
                f"{block.name} has no options; its table is empty",
                field=f"profile.tables[{block.table}]",
            )
        if any(other.name == block.name for other in profile.blocks[:place]):
            raise InvalidRequestError(
                f"{block.name} is there twice; a block has one name",
                field=f"profile.blocks[{place}].name",
            )
    if replace(request.parallelism, world_size=None) != Parallelism() or (
        request.parallelism.world_size not in (None, 1)
    ):
        raise NotSupportedError(
            "parallelism: a profile is of one rank as it ran, and this version shards none; "
            "leave it out"
        )


def _check_bounds(chain: ProfiledChain) -> None:
    most = chain.standing_bytes + 2 * chain.all_gradients
    for options in chain.options:
        most += max(
            max(each.retained_bytes, each.forward_peak_bytes, each.backward_peak_bytes)
            + each.extra_ns
            for each in options
        )
    if most > MOST:
        raise InvalidRequestError(
            f"bytes and nanoseconds sum to {float(most):.3g}, more than can be written",
            field="profile",
        )


def _moments_bytes(training: Training, profile: Profile) -> tuple[int, tuple[str, ...]]:
    """Give the bytes of the optimizer's moments: so many copies of what has gradients."""
    optimizer = training.optimizer or Optimizer.ADAMW
    kind = KINDS[optimizer]
    if kind.form is not Form.WHOLE or kind.width is not None:
        raise NotSupportedError(
            f"training.optimizer {optimizer.name}: a profile has bytes of gradients and no shapes; "
            "an optimizer that keeps whole copies would do, such as ADAMW or SGD_MOMENTUM"
        )
    said = () if training.optimizer else ("optimizer: AdamW",)
    copied = sum(block.gradient_bytes for block in profile.blocks)
    return kind.moments * copied, (*said, "the optimizer's moments have the gradients' type")


def _budget(request: PlanRequest) -> BudgetConversion:
    budget = request.budget
    if budget is None:
        raise InvalidRequestError("a profile's plan needs a budget in bytes", field="budget")
    if budget.kind is BytesKind.DEVICE:
        raise NotSupportedError(
            "budget.kind: what a device needs beside allocated bytes is not in a profile; give "
            "allocated bytes"
        )
    step = f"allocated bytes: {format_bytes(budget.bytes)}; the profile's figures, no margin"
    given = replace(budget, kind=BytesKind.ALLOCATED)
    return BudgetConversion(given=given, allocated_bytes=budget.bytes, steps=(step,))


def _assumed(request: PlanRequest) -> tuple[str, ...]:
    budget, accumulation = request.budget, request.training.accumulation
    unsaid = budget is not None and budget.kind is BytesKind.UNSPECIFIED
    kind = ("budget: it limits allocated bytes",) if unsaid else ()
    one = ("accumulation: 1; gradients are made anew in each step",) if not accumulation else ()
    return (*kind, *one, *limits.assumed(request))


def _ignored(training: Training) -> tuple[str, ...]:
    given = [
        each.name
        for each in fields(training)
        if each.name not in _READ and getattr(training, each.name) != getattr(Training(), each.name)
    ]
    return tuple(f"training.{name}: the profile is of the step as it ran" for name in given)


def _feasible(
    common: Plan,
    profile: Profile,
    chain: ProfiledChain,
    chosen: Sequence[int],
    choice: "Choice",
) -> Plan:
    options = [options[index] for options, index in zip(chain.options, chosen, strict=True)]
    extra = sum(option.extra_ns for option in options)
    gap = 0 if choice.proven else extra - choice.lower_bound
    peak_bytes, at = chain.peak(chosen)
    changed = sum(option.name != "save" for option in options)
    budget = common.budget.allocated_bytes if common.budget else 0
    return replace(
        common,
        status=PlanStatus.OPTIMAL if gap == 0 else PlanStatus.FEASIBLE,
        actions=tuple(
            BlockAction(block=block.name, option=option.name, fingerprint=block.fingerprint)
            for block, option in zip(profile.blocks, options, strict=True)
        ),
        total_gain=sum(max(each.extra_ns for each in rows) for rows in chain.options) - extra,
        total_size_bytes=sum(option.retained_bytes for option in options),
        extra_ns=extra,
        predicted_peak_bytes=peak_bytes,
        peak_at=at,
        lower_bound=extra - gap,
        gap=gap,
        rung=Rung.CEILING,
        reason=(
            f"{changed} of {len(options)} parts are recomputed, wholly or in part; the profiled "
            f"peak of {format_bytes(peak_bytes)} is within {format_bytes(budget)}"
        ),
    )


def _infeasible(common: Plan, conversion: BudgetConversion) -> Plan:
    at = common.floor_at
    assert at is not None
    return replace(
        common,
        status=PlanStatus.INFEASIBLE,
        solver="floor by halving the budget",
        rung=Rung.FLOOR,
        reason=(
            f"no plan holds {format_bytes(conversion.allocated_bytes)}: the least peak is "
            f"{format_bytes(common.floor_bytes)} at {at.moment}, where the largest terms are "
            f"{' and '.join(at.largest_terms[:2])}"
        ),
    )


def _frontier(
    request: PlanRequest,
    chain: ProfiledChain,
    table: ceiling.Tables,
    least: ceiling.Floor,
    cancel: Cancel,
) -> tuple[FrontierPoint, ...]:
    points = request.frontier_points
    points = limits.FRONTIER_POINTS if points is None else points
    if points == 0:
        return ()
    everything = max(least.peak_bytes, chain.peak([0] * len(chain.options))[0])
    span, steps = everything - least.peak_bytes, max(1, points - 1)
    budgets = sorted({least.peak_bytes + span * step // steps for step in range(points)})
    state_limit = request.state_limit or limits.STATE_LIMIT
    choices = ceiling.frontier(table, budgets, state_limit=state_limit, cancel=cancel)
    return tuple(
        _point(chain, each, ceiling.local(table, choice.options), choice)
        for each, choice in zip(budgets, choices, strict=True)
    )


def _point(
    chain: ProfiledChain, budget_bytes: int, chosen: Sequence[int], choice: "Choice"
) -> FrontierPoint:
    names = [rows[index].name for rows, index in zip(chain.options, chosen, strict=True)]
    return FrontierPoint(
        budget_bytes=budget_bytes,
        peak_bytes=chain.peak(chosen)[0],
        cost=choice.extra,
        saved_count=names.count("save"),
        proven=choice.proven,
    )
