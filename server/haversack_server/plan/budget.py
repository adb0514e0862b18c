"""The budget of a model's plan: from what the caller named to expected allocated bytes.

Capacity is rounded down, here and nowhere else. Analytic plans are fitted to the high end of their
margin, unless the caller takes the risk of the expected figures.
"""

from dataclasses import replace

from haversack.errors import InvalidRequestError
from haversack.plan import BudgetConversion, PlanRequest
from haversack.run import Budget, BytesKind
from haversack.units import format_bytes
from haversack_server.memory import margins
from haversack_server.memory.model_run import ModelRun
from haversack_server.plan import limits


def convert(request: PlanRequest, run: ModelRun) -> BudgetConversion:
    """Find what the budget, or the device if none is named, leaves for allocated bytes."""
    budget = request.budget
    if budget is None and request.device.memory_bytes is None:
        raise InvalidRequestError(
            "a plan needs a budget or the device's memory; give one of them", field="budget"
        )
    if budget is None:
        budget = Budget(bytes=request.device.memory_bytes or 0, kind=BytesKind.DEVICE)
    if budget.kind is BytesKind.DEVICE:
        return _device(budget, run, expected=request.fit_expected)
    return _allocated(budget, run, expected=request.fit_expected)


def assumed(request: PlanRequest) -> tuple[str, ...]:
    """Say which bytes a budget of no stated kind was taken to limit, and how far a solve goes."""
    budget = request.budget
    unsaid = budget is not None and budget.kind is BytesKind.UNSPECIFIED
    kind = ("budget: it limits allocated bytes",) if unsaid else ()
    return kind + limits.assumed(request)


def _device(budget: Budget, run: ModelRun, *, expected: bool) -> BudgetConversion:
    profile, degrees = run.profile, run.degrees
    left = margins.allocated_for_device(budget.bytes, profile, degrees, expected=expected)
    beside = margins.outside(profile, degrees)
    reserve = profile.reserved_over_allocated_permille
    if not expected:
        reserve = profile.reserved_over_allocated_high_permille
    steps = [
        f"usable device bytes: {format_bytes(budget.bytes)}",
        f"less outside the allocator: {format_bytes(beside.high_bytes)}",
        f"divided by reserved over allocated: {reserve / 1000:.3f}",
    ]
    return BudgetConversion(
        given=budget,
        allocated_bytes=max(0, left),
        steps=(*steps, _margin_step(run, expected), f"allocated bytes: {format_bytes(left)}"),
    )


def _allocated(budget: Budget, run: ModelRun, *, expected: bool) -> BudgetConversion:
    left = budget.bytes if expected else margins.allocated_for_high(budget.bytes, run.profile)
    steps = (
        f"allocated bytes: {format_bytes(budget.bytes)}",
        _margin_step(run, expected),
        f"expected allocated bytes: {format_bytes(left)}",
    )
    given = replace(budget, kind=BytesKind.ALLOCATED)
    return BudgetConversion(given=given, allocated_bytes=left, steps=steps)


def _margin_step(run: ModelRun, expected: bool) -> str:
    if expected:
        return "fitted to the expected figures: the margin is the caller's risk"
    margin = 1 + run.profile.margin_high_permille / 1000
    return f"divided by the high end of the estimate: {margin:.3f} of what is expected"
