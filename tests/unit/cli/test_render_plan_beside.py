"""What stands beside a plan on its page."""

from dataclasses import replace

from tests.unit.cli.samples import GIB, PLAN, PLAN_REQUEST, drawn

from haversack.cli.render.plan import draw_plan
from haversack.plan import Baseline, FrontierReading, PlanStatus, RankPlan
from haversack.run import BlockAction


def test_other_ways_are_drawn_under_the_plan_with_what_they_need() -> None:
    ways = (
        Baseline(name="none", peak_bytes=90 * GIB, saved_count=34),
        Baseline(name="full", peak_bytes=40 * GIB, fits=True, extra_ns=9 * 10**8, saved_count=2),
    )
    lines = drawn(draw_plan, PLAN_REQUEST, replace(PLAN, baselines=ways), False).splitlines()
    table = [
        line.split()
        for line in lines
        if "GiB" in line and line.split()[0] in ("this", "none", "full")
    ]
    assert [row[0] for row in table] == ["this", "none", "full"]
    assert table[1][-3:] == ["over", "the", "budget"]
    assert table[2][1:3] == ["40.00", "GiB"]
    assert table[2][-1] == "fits"


def test_stages_the_knee_and_the_price_of_treating_alike_are_drawn() -> None:
    stage = RankPlan(
        name="stage 0",
        rank_count=8,
        status=PlanStatus.OPTIMAL,
        predicted_peak_bytes=50 * GIB,
        floor_bytes=30 * GIB,
        extra_ns=5 * 10**6,
        recomputed_count=3,
    )
    reading = FrontierReading(
        knee_budget_bytes=42 * GIB, knee_cost=10**7, next_gib_spares_ns=3 * 10**6
    )
    answer = replace(PLAN, ranks=(stage,), reading=reading, equal_treatment_ns=2 * 10**6)
    text = drawn(draw_plan, PLAN_REQUEST, answer, False)
    assert "stage 0" in text
    assert "42.00 GiB, with 10.00 ms of extra time" in text
    assert "spares 3.00 ms a step" in text
    assert "treating equal blocks alike costs 2.00 ms a step" in text


def test_the_blocks_of_a_segment_stand_together() -> None:
    blocks = [("layers.0", 1), ("layers.1", 1), ("layers.2", 2), ("layers.3", 2)]
    actions = tuple(
        BlockAction(block=name, option="recompute", segment=number) for name, number in blocks
    )
    text = drawn(draw_plan, PLAN_REQUEST, replace(PLAN, actions=actions), False)
    assert "recompute, segment 1       2  layers.0-1" in text
    assert "recompute, segment 2       2  layers.2-3" in text
