"""What both clients check before they send anything."""

from typing import Any

import numpy as np
import pytest

from haversack import _calls
from haversack.errors import InvalidRequestError
from haversack.plan import Plan, PlanRequest
from haversack.profile import Profile
from haversack.run import Budget

HUGE = 10**5000  # more digits than Python writes
COLUMNS: dict[str, Any] = {
    "size_bytes": [3, 2],
    "gain": [5, 3],
    "names": (),
    "fixed_bytes": 0,
    "budget_bytes": 4,
    "frontier_points": None,
    "state_limit": None,
}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"size_bytes": 5}, "candidates.size_bytes"),
        ({"size_bytes": None}, "candidates.size_bytes"),
        ({"size_bytes": np.array(5)}, "candidates.size_bytes"),
        ({"gain": "53"}, "candidates.gain"),
        ({"gain": [5, HUGE]}, "candidates.gain[1]"),
        ({"names": "ab"}, "candidates.names"),
        ({"names": [1, 2]}, "candidates.names[0]"),
        ({"names": 5}, "candidates.names"),
        ({"budget_bytes": None}, "budget.bytes"),
        ({"budget_bytes": 4.0}, "budget.bytes"),
    ],
)
def test_columns_that_will_not_do_name_their_field(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        _calls.candidates_request(**COLUMNS | wrong)
    assert caught.value.field == field


def test_figures_of_numpy_are_figures() -> None:
    given: dict[str, Any] = {
        "size_bytes": [np.int64(3), np.int64(2)],
        "gain": np.array([5, 3]),
        "budget_bytes": np.int64(4),
        "frontier_points": np.int8(3),
    }
    plain: dict[str, Any] = {**COLUMNS, "frontier_points": 3}
    expected = _calls.candidates_request(**plain)
    assert _calls.candidates_request(**COLUMNS | given) == expected


@pytest.mark.parametrize(
    "timeout",
    [None, "3", float("nan"), float("inf"), -1, 0, True, pytest.param(HUGE, id="huge"), [1]],
)
def test_a_timeout_that_is_no_time_is_refused(timeout: Any) -> None:
    with pytest.raises(InvalidRequestError, match="seconds above 0") as caught:
        _calls.Attempts(timeout)
    assert caught.value.field == "timeout"


@pytest.mark.parametrize("timeout", [3, 0.5, np.float64(2), np.int64(3)])
def test_a_timeout_is_a_number_of_seconds(timeout: Any) -> None:
    assert 0 < _calls.Attempts(timeout).time_left() <= timeout


@pytest.mark.parametrize("address", ["http://localhost:50051", "https://x", "tcp://x:1", ""])
def test_what_is_no_address_of_a_server_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        _calls.check_target(address, ())
    assert caught.value.field == "address"


@pytest.mark.parametrize("address", [None, "localhost:1", "unix:/tmp/x", "dns:///a:1", "[::1]:1"])
def test_addresses_that_grpc_takes_pass(address: str | None) -> None:
    _calls.check_target(address, ())


def test_a_plan_has_the_profile_that_was_sent() -> None:
    sent, other = Profile(device="cpu"), Profile(device="cuda")
    asked = PlanRequest(profile=sent, budget=Budget(bytes=1))
    assert _calls.with_profile(Plan(), asked).profile == sent
    assert _calls.with_profile(Plan(profile=other), asked).profile == other
