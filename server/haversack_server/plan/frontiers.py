"""The budgets of a frontier, and what one reads off it: the knee, and the price of the next GiB."""

from collections.abc import Sequence

from haversack.plan import FrontierPoint, FrontierReading, PlanRequest
from haversack.units import GIB
from haversack_server.plan.limits import FRONTIER_POINTS


def budgets_of(request: PlanRequest, floor_bytes: int, everything_bytes: int) -> list[int]:
    """Spread budgets evenly from the floor to the peak with everything saved."""
    points = FRONTIER_POINTS if request.frontier_points is None else request.frontier_points
    span, steps = max(0, everything_bytes - floor_bytes), max(1, points - 1)
    return sorted({floor_bytes + span * step // steps for step in range(points)})


def reading_of(
    frontier: Sequence[FrontierPoint], budget_bytes: int, extra_ns: int | None
) -> FrontierReading | None:
    """Read the knee off, and for a plan what one more GiB than its budget spares."""
    if not frontier:
        return None
    knee = _knee(frontier)
    return FrontierReading(
        knee_budget_bytes=knee.budget_bytes if knee else None,
        knee_cost=knee.cost if knee else 0,
        next_gib_spares_ns=0 if extra_ns is None else _next_gib(frontier, budget_bytes, extra_ns),
    )


def _knee(frontier: Sequence[FrontierPoint]) -> FrontierPoint | None:
    """Find the point farthest below the line between the ends, each axis taken from 0 to 1."""
    first, last = frontier[0], frontier[-1]
    width, height = last.budget_bytes - first.budget_bytes, first.cost - last.cost
    if width <= 0 or height <= 0:
        return None

    def below(point: FrontierPoint) -> float:
        across = (point.budget_bytes - first.budget_bytes) / width
        return 1 - across - (point.cost - last.cost) / height

    best = max(frontier, key=below)
    return best if below(best) > 0 else None


def _next_gib(frontier: Sequence[FrontierPoint], budget_bytes: int, extra_ns: int) -> int:
    above = [point for point in frontier if point.budget_bytes > budget_bytes]
    if not above:
        return 0
    spared = max(0, extra_ns - above[0].cost)
    # No bytes spare more than there is, however near the next point.
    return min(extra_ns, spared * GIB // (above[0].budget_bytes - budget_bytes))
