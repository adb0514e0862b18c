"""A plan on its page."""

from tests.unit.cli.samples import GIB, PLAN, PLAN_REQUEST, drawn

from haversack.cli.render.plan import draw_plan
from haversack.plan import (
    BudgetConversion,
    PeakAt,
    Plan,
    PlanStatus,
    Rung,
    SolvedBy,
)
from haversack.requests import plan_request
from haversack.run import Advice, Budget


def test_a_plan_tells_blocks_as_ranges() -> None:
    text = drawn(draw_plan, PLAN_REQUEST, PLAN, False)
    assert text.startswith("FEASIBLE  12 of 34 blocks are recomputed")
    assert "recompute      12  layers.0-11" in text
    assert "layers.12-31, head" in text
    assert "█░░░░░░░░░░░░█████████████████████" in text


def test_a_plan_tells_its_budget_its_price_and_its_gap() -> None:
    text = drawn(draw_plan, PLAN_REQUEST, PLAN, False)
    assert "80.00 GiB device, which leaves 60.00 GiB expected after margins" in text
    assert "59.00 GiB allocated, expected" in text
    assert "backward head (step 2 backward)" in text
    assert "logits: 24.00 GiB" in text
    assert "210.00 ms a step, 8.3% of the step" in text
    assert "at most 1.00 ms above the best plan" in text


def test_the_frontier_tells_what_the_next_gib_spares() -> None:
    lines = drawn(draw_plan, PLAN_REQUEST, PLAN, False).splitlines()
    (first,) = [line for line in lines if line.strip().startswith("40.00 GiB  40.00 GiB")]
    # 200 ms less for 2 GiB more.
    assert first.split()[-4:] == ["100.00", "ms", "not", "proven"]


def test_verbose_tells_what_solved_it_and_why() -> None:
    by = SolvedBy(
        algorithm="core, then dense",
        cells="int32",
        reason="NVIDIA H200 failed (lost); the core may look at 9 states",
    )
    request = plan_request(candidates={"size_bytes": [1], "gain": [1]}, budget=1)
    answer = Plan(status=PlanStatus.OPTIMAL, saved=(0,), total_gain=1, solved_by=by)
    shown = drawn(draw_plan, request, answer, True)
    assert "core, then dense, int32 cells, on cpu" in shown
    assert "NVIDIA H200 failed (lost)" in shown
    assert "How it was solved" not in drawn(draw_plan, request, answer, False)


def test_verbose_lists_the_conversion_of_the_budget() -> None:
    assert "-  usable device bytes: 80.00 GiB" in drawn(draw_plan, PLAN_REQUEST, PLAN, True)


def test_an_infeasible_plan_tells_its_floor_and_what_lowers_it() -> None:
    answer = Plan(
        status=PlanStatus.INFEASIBLE,
        reason="no plan holds 51.84 GiB",
        budget=PLAN.budget,
        floor_bytes=79 * GIB,
        floor_at=PeakAt(block="head", largest_terms=("logits: 48.00 GiB",)),
        relief=(Advice(change="microbatch 2", delta_bytes=-32 * GIB, cost="more steps"),),
        rung=Rung.FLOOR,
    )
    text = drawn(draw_plan, PLAN_REQUEST, answer, False)
    assert text.startswith("INFEASIBLE  no plan holds 51.84 GiB")
    assert "79.00 GiB, the least peak of any plan" in text
    assert "logits: 48.00 GiB" in text
    assert "microbatch 2  -32.00 GiB  more steps" in text


def test_candidates_are_named_with_their_indices() -> None:
    table = {"size_bytes": [3, 2, 2], "gain": [5, 3, 3], "names": ["a", "b0", "b1"]}
    answer = Plan(
        status=PlanStatus.OPTIMAL,
        saved=(1, 2),
        total_gain=6,
        total_size_bytes=4,
        budget=BudgetConversion(given=Budget(bytes=4), allocated_bytes=4),
    )
    text = drawn(draw_plan, plan_request(candidates=table, budget=4), answer, False)
    assert "1-2 (b0-1)" in text
    assert "0 (a)" in text
    assert "6 of 11" in text


def test_the_mirror_form_speaks_of_freed_bytes_and_added_time() -> None:
    table = {"freed_bytes": [6, 4], "added_ns": [9, 5]}
    request = plan_request(recompute_candidates=table, budget=6)
    answer = Plan(status=PlanStatus.OPTIMAL, saved=(0,), extra_ns=5)
    text = drawn(draw_plan, request, answer, False)
    rows = dict(line.strip().split(maxsplit=1) for line in text.splitlines() if line[:2] == "  ")
    assert rows["freed"].split() == ["bytes", "4", "B"]
    assert rows["added"].split() == ["time", "5", "ns"]
    assert rows["recompute"] == "1"


def test_a_plan_that_was_not_sought_is_unknown_and_draws_no_figures() -> None:
    sentence = "pp=2: pipeline stages are not modelled yet"
    answer = Plan(reason=sentence, solver="none", not_modelled=(sentence,))
    text = drawn(draw_plan, PLAN_REQUEST, answer, False)
    assert text.startswith(f"UNKNOWN  {sentence}")
    assert "floor" not in text
    assert "rung" not in text
