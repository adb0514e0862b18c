"""Modules of the user's: what functions read of them, and those that something holds."""

import sys
from typing import Any

import pytest

pytest.importorskip("torch", reason="the worker needs the extra torch")

import tests.unit.verify.outcomes

from haversack_server.worker.state import snapshot

OWN = [0]


def names_them_all() -> Any:
    return tests.unit.verify.outcomes.COUNTED


def has_it_in_its_closure() -> Any:
    held = tests.unit.verify.outcomes
    return lambda: held.COUNTED


def asks_an_attribute() -> Any:
    return getattr(tests.unit.verify.outcomes, "COUNTED")  # noqa: B009


@pytest.mark.parametrize("function", [names_them_all, has_it_in_its_closure(), asks_an_attribute])
def test_globals_are_found_however_deep_the_modules_lie(function: Any) -> None:
    assert "tests.unit.verify.outcomes.COUNTED" in snapshot({"root": function}).values


def test_a_module_that_something_holds_is_seen_if_it_is_the_users() -> None:
    assert f"{__name__}.OWN[0]" in snapshot({"root": [sys.modules[__name__]]}).values
    assert snapshot({"root": [pytest]}).values == {"root": "list of 1"}
