"""Plans made again with what a real step needed: the reserve, and whose figures will not do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.plan.test_profiled import PROFILE, planned

from haversack import write_plan
from haversack.basis import Basis
from haversack.errors import InvalidRequestError
from haversack.parallelism import Parallelism, Sharding
from haversack.plan import MomentPeak, Plan
from haversack.profile import Profile
from haversack.requests import plan_request

ROOMY = 10**6
ON_TWO = Parallelism(world_size=2, sharding=Sharding.FSDP2)


def first_plan() -> Plan:
    return replace(planned(ROOMY), profile=PROFILE)


def edited_plan() -> Plan:
    """Predict a phase that no step has."""
    moments = (MomentPeak(phase="init", block="layers.0", peak_bytes=1),)
    return replace(first_plan(), moments=moments)


def again(plan: Plan | Profile, *measurements: dict[str, Any]) -> Profile:
    found = plan_request(profile=plan, measurements=measurements, budget=ROOMY).profile
    assert found is not None
    return found


def test_a_plan_made_again_predicts_what_was_measured_of_the_first() -> None:
    first = first_plan()
    assert first.predicted_peak_bytes is not None
    measured = first.predicted_peak_bytes + 7
    profile = again(first, {"allocated_bytes": measured})
    assert profile == replace(
        PROFILE, workspace_bytes=PROFILE.workspace_bytes + 7, basis=Basis.MEASURED
    )
    answer = planned(ROOMY, profile)
    assert (answer.predicted_peak_bytes, answer.basis) == (measured, Basis.MEASURED)
    assert "measured: 10 B beyond the prediction are kept free" in answer.assumptions
    # What no longer fits by what was measured is planned otherwise.
    assert planned(measured - 1, profile).extra_ns > first.extra_ns


def test_a_phase_is_held_against_its_own_highest_moment() -> None:
    first = first_plan()
    forward = max(each.peak_bytes for each in first.moments if each.phase == "forward")
    for phase in ("forward", "step 2 forward"):  # the second as an estimate spells it
        profile = again(first, {"phase": phase, "allocated_bytes": forward + 5})
        assert profile.workspace_bytes == PROFILE.workspace_bytes + 5
    # Less than was predicted gives nothing away: another plan may need it.
    below = again(first, {"phase": "forward", "allocated_bytes": forward - 5})
    assert replace(below, notes=()) == PROFILE  # nor is its basis MEASURED


def test_a_figure_below_its_prediction_changes_nothing_and_the_answer_says_so() -> None:
    first = first_plan()
    whole = first.predicted_peak_bytes or 0
    forward = max(each.peak_bytes for each in first.moments if each.phase == "forward")
    above = {"phase": "forward", "allocated_bytes": forward + 1}
    profile = again(first, {"allocated_bytes": whole - 3}, above)
    (said,) = [each for each in planned(ROOMY, profile).assumptions if "used for nothing" in each]
    assert said.endswith(f": the step, {whole - 3} B of {whole} B predicted")
    assert not any("used for nothing" in each for each in planned(ROOMY, PROFILE).assumptions)
    # A figure that was met leaves no note, and an earlier note does not outlive its figure.
    assert again(replace(first, profile=profile), {"allocated_bytes": whole}).notes == ()


def test_notes_of_others_outlive_a_measurement() -> None:
    first = replace(first_plan(), profile=replace(PROFILE, notes=("of the profiler",)))
    whole = first.predicted_peak_bytes or 0
    below, above = (again(first, {"allocated_bytes": whole + each}) for each in (-1, 1))
    assert above.notes == ("of the profiler",)
    assert below.notes[:-1] == above.notes
    assert (below.basis, above.basis) == (PROFILE.basis, Basis.MEASURED)


def test_a_plan_in_a_file_stands_for_its_profile(tmp_path: Path) -> None:
    first = first_plan()
    path = tmp_path / "plan.json"
    write_plan(first, path)
    measured = {"allocated_bytes": (first.predicted_peak_bytes or 0) + 3}
    request = plan_request(profile=path, measurements=[measured], budget=ROOMY)
    assert request.profile == again(first, measured)
    assert plan_request(profile=first, budget=ROOMY).profile == PROFILE


@pytest.mark.parametrize(
    ("plan", "measurement", "field"),
    [
        (PROFILE, {"allocated_bytes": 1}, "measurements"),
        (planned(ROOMY), {"allocated_bytes": 1}, "profile"),
        (first_plan(), {"phase": "init", "allocated_bytes": 1}, "measurements[0].phase"),
        (first_plan(), {"phase": 2, "allocated_bytes": 1}, "measurements[0].phase"),
        (first_plan(), {"reserved_bytes": 1}, "measurements[0].allocated_bytes"),
        (edited_plan(), {"allocated_bytes": 1}, "profile"),
        (first_plan(), {"allocated_bytes": 39}, "measurements[0].allocated_bytes"),
        (first_plan(), {"allocated_bytes": 10**6, "rank": 3}, "measurements[0].rank"),
    ],
)
def test_what_no_plan_predicted_is_refused(
    plan: Plan | Profile, measurement: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        again(plan, measurement)
    assert refused.value.field == field


def test_a_reserve_is_no_state_where_nothing_fits() -> None:
    profile = again(first_plan(), {"allocated_bytes": 10**9})
    at = planned(10**6, profile).floor_at
    assert at is not None
    assert at.largest_terms[0].startswith("kept free beyond the prediction: 953")


@pytest.mark.parametrize("measured", [(), ({"allocated_bytes": 400},)])
def test_ranks_of_a_plan_count_where_none_are_named(tmp_path: Path, measured: Any) -> None:
    plan = replace(first_plan(), parallelism=ON_TWO)
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    for given in (plan, path):
        asked = plan_request(profile=given, measurements=measured, budget=ROOMY)
        assert asked.parallelism == ON_TWO
    same = plan_request(profile=path, measurements=measured, budget=ROOMY, gpus=2, fsdp=True)
    assert same.parallelism == ON_TWO


@pytest.mark.parametrize("ranks", [{"gpus": 1}, {"gpus": 4, "fsdp": True}])
def test_figures_are_of_the_ranks_that_were_planned_for(ranks: Any) -> None:
    plan = replace(first_plan(), parallelism=ON_TWO)
    # The profile itself may be planned for others.
    assert plan_request(profile=plan, budget=ROOMY, **ranks).parallelism.world_size == ranks["gpus"]
    with pytest.raises(InvalidRequestError, match="a plan for 2 ranks under FSDP2, and") as refused:
        plan_request(profile=plan, measurements=[{"allocated_bytes": 400}], budget=ROOMY, **ranks)
    assert refused.value.field == "parallelism"
