"""What is read off a frontier."""

import pytest
from tests.unit.cli.samples import drawn

from haversack.cli.render.plan import draw_plan
from haversack.plan import FrontierPoint, Plan, PlanRequest, PlanStatus
from haversack.profile import Profile
from haversack.run import Budget
from haversack.units import GIB, MIB, format_ns
from haversack_server.plan.frontiers import reading_of


def points(apart_bytes: int) -> tuple[FrontierPoint, ...]:
    return tuple(
        FrontierPoint(
            budget_bytes=place * apart_bytes,
            peak_bytes=place,
            cost=cost,
            saved_count=place,
            proven=True,
        )
        for place, cost in enumerate((1_500, 300, 0), start=1)
    )


@pytest.mark.parametrize(("apart_bytes", "spares"), [(MIB, 1_500), (2 * GIB, 600)])
def test_the_next_gib_spares_no_more_than_there_is(apart_bytes: int, spares: int) -> None:
    frontier = points(apart_bytes)
    found = reading_of(frontier, apart_bytes, 1_500)
    assert found is not None
    assert found.next_gib_spares_ns == spares
    answer = Plan(status=PlanStatus.OPTIMAL, frontier=frontier)
    asked = PlanRequest(profile=Profile(), budget=Budget(bytes=MIB))
    shown = drawn(draw_plan, asked, answer, False)
    assert f" {format_ns(spares)}\n" in shown
