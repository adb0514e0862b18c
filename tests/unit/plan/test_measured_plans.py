"""Plans made again with what a real step needed: the reserve, and whose figures will not do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.plan.test_profiled import PROFILE, planned

from haversack import write_plan
from haversack.basis import Basis
from haversack.errors import InvalidRequestError
from haversack.plan import Plan
from haversack.profile import Profile
from haversack.requests import plan_request

ROOMY = 10**6


def first_plan() -> Plan:
    return replace(planned(ROOMY), profile=PROFILE)


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
    assert below.workspace_bytes == PROFILE.workspace_bytes


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
        (first_plan(), {"reserved_bytes": 1}, "measurements[0].allocated_bytes"),
    ],
)
def test_what_no_plan_predicted_is_refused(
    plan: Plan | Profile, measurement: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        again(plan, measurement)
    assert refused.value.field == field
