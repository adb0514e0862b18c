"""Which plan is answered when a first one was run, and made anew from what was seen."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from haversack.basis import Basis
from haversack.observed import Observed, repaired
from haversack.plan import BudgetConversion, Certificate, MomentPeak, Plan, PlanStatus
from haversack.profile import Profile
from haversack.run import BlockAction
from haversack_server.plan.certified import better_of, certified, is_to_be_repaired

BUDGET = 1000


def planned(predicted: int, extra_ns: int = 10) -> Plan:
    return Plan(
        status=PlanStatus.OPTIMAL,
        actions=(BlockAction(block="a", option="recompute"),),
        predicted_peak_bytes=predicted,
        moments=(MomentPeak(phase="forward", block="a", peak_bytes=predicted - 100),
                 MomentPeak(phase="backward", block="a", peak_bytes=predicted)),
        budget=BudgetConversion(allocated_bytes=BUDGET),
        extra_ns=extra_ns,
        basis=Basis.PROFILED,
        reason="found",
    )  # fmt: skip


def seen(forward: int, backward: int) -> Observed:
    return Observed(phase=("forward", "backward"), block=("a", "a"), peak_bytes=(forward, backward))


def findings(plan: Plan) -> Sequence[str]:
    assert plan.certificate is not None
    return plan.certificate.findings


def test_a_plan_that_needs_what_was_predicted_stands_on_its_execution() -> None:
    answer = certified(planned(900), seen(780, 895))
    assert answer.basis is Basis.SIMULATED
    assert answer.certificate is not None
    assert answer.certificate.holds
    assert answer.certificate.observed_at is not None
    assert answer.certificate.observed_at.phase == "backward"
    assert [(each.predicted_bytes, each.observed_bytes) for each in answer.certificate.phases] == [
        (800, 780),
        (900, 895),
    ]
    assert not answer.certificate.findings
    assert answer.reason.endswith("it holds")
    assert not is_to_be_repaired(answer)


@pytest.mark.parametrize(
    ("peak", "extra_ns", "repairs"), [(901, 0, True), (881, 10, True), (882, 10, False),
                                      (500, 0, False)]
)  # fmt: skip
def test_what_is_above_is_repaired_and_what_is_far_below_where_it_costs_time(
    peak: int, extra_ns: int, repairs: bool
) -> None:
    answer = certified(planned(900, extra_ns), seen(10, peak))
    assert is_to_be_repaired(answer) is repairs
    assert answer.basis is (Basis.PROFILED if peak > 900 else Basis.SIMULATED)


def test_a_step_above_the_budget_does_not_hold_and_says_so() -> None:
    answer = certified(planned(900), seen(10, 1100))
    assert answer.certificate is not None
    assert not answer.certificate.holds
    assert "22.2% above the 900 B predicted" in answer.certificate.findings[0]
    assert "above the budget of 1000 B" in answer.certificate.findings[-1]


def test_a_profile_is_repaired_by_what_was_seen_beyond_its_predictions() -> None:
    profile = Profile(workspace_bytes=5)
    assert repaired(profile, planned(900), seen(830, 910)).workspace_bytes == 5 + 30
    assert repaired(profile, planned(900), seen(600, 700)) == profile
    lowered = repaired(profile, planned(900), seen(600, 700), lowers=True)
    assert lowered.workspace_bytes == 5 - 200


def test_a_plan_that_stands_wins_over_one_that_does_not() -> None:
    above = certified(planned(900), seen(10, 1100))
    again = certified(planned(980, extra_ns=30), seen(10, 980))
    answer = better_of(above, again)
    assert answer.extra_ns == 30
    assert answer.certificate is not None
    assert answer.certificate.replanned
    assert findings(answer)[0].startswith("first plan: the step:")


def test_of_two_that_stand_the_cheaper_wins() -> None:
    low = certified(planned(900), seen(10, 700))
    cheaper = better_of(low, certified(planned(990, extra_ns=4), seen(10, 985)))
    assert cheaper.extra_ns == 4
    dearer = better_of(low, certified(planned(990, extra_ns=12), seen(10, 985)))
    assert dearer.extra_ns == 10
    assert findings(dearer)[-1].startswith("planned anew")
    # Cheaper, but above what it predicts: the one that stands is kept.
    wrong = better_of(low, certified(planned(990, extra_ns=4), seen(10, 995)))
    assert wrong.extra_ns == 10


def test_where_nothing_holds_the_repaired_figures_the_answer_says_what_was_seen() -> None:
    nothing = replace(planned(900), status=PlanStatus.INFEASIBLE, actions=())
    answer = better_of(certified(planned(900), seen(10, 1100)), nothing)
    assert answer.status is PlanStatus.INFEASIBLE
    assert isinstance(answer.certificate, Certificate)
    assert answer.certificate.observed_peak_bytes == 1100
    above = certified(planned(900), seen(10, 950))
    assert better_of(above, nothing) == above  # above its prediction, and within the budget
