"""Every alert has a case in which it fires and one in which it is silent; promtool runs them."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.deploy.dashboard import ALERTS, RECORDING, metric_names

CASES: list[dict[str, Any]] = [
    case
    for test in yaml.safe_load(Path(__file__).with_name("alerts.test.yml").read_text())["tests"]
    for case in test.get("alert_rule_test", ())
]

every_alert = pytest.mark.parametrize("alert", ALERTS, ids=[each["alert"] for each in ALERTS])


@every_alert
def test_an_alert_has_a_firing_and_a_silent_case(alert: dict[str, Any]) -> None:
    expected = [bool(case["exp_alerts"]) for case in CASES if case["alertname"] == alert["alert"]]
    assert set(expected) == {True, False}


@every_alert
def test_an_alert_says_how_bad_it_is_and_what_to_look_at(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning"}
    assert alert["annotations"]["summary"].endswith(".")
    assert alert["annotations"]["description"].endswith(".")


def test_no_case_is_of_an_alert_that_is_gone() -> None:
    assert {case["alertname"] for case in CASES} == {each["alert"] for each in ALERTS}


def test_recorded_series_are_used_and_named_by_level_metric_and_operation() -> None:
    recorded = {each["record"] for each in RECORDING}
    used = {name for rule in [*ALERTS, *RECORDING] for name in metric_names(rule["expr"])}
    assert {name for name in used if ":" in name} == recorded
    assert all(name.count(":") == 2 for name in recorded)
