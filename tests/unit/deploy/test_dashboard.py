"""Our dashboard under the rules of Grafana's own dashboard linter, and its provisioning."""

import re
from itertools import combinations
from typing import Any

import pytest
import yaml
from tests.unit.deploy.dashboard import (
    DASHBOARD,
    GRAFANA,
    PANELS,
    QUERIES,
    RECORDING,
    ROOT,
    VARIABLES,
    Query,
    filled,
    metric_names,
)

GRID_COLUMNS = 24
MATCHERS = ('job=~"$job"', 'instance=~"$instance"')
COUNTER = re.compile(r"\w+_(?:total|bucket|count|sum)\b(?!\s*\()")

every_panel = pytest.mark.parametrize("panel", PANELS, ids=[each["title"] for each in PANELS])
every_query = pytest.mark.parametrize("query", QUERIES, ids=str)


def test_the_dashboard_says_what_it_is() -> None:
    assert DASHBOARD["title"]
    assert DASHBOARD["description"].endswith(".")
    assert DASHBOARD["uid"] == "haversack"
    assert DASHBOARD["editable"] is False


def test_every_subject_has_a_row() -> None:
    rows = [each["title"] for each in DASHBOARD["panels"] if each["type"] == "row"]
    assert rows == ["At a glance", "Requests", "Latency", "Plan", "Verify", "Process"]


def test_the_data_source_is_a_variable() -> None:
    variable = VARIABLES["datasource"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    assert variable["label"] == "Data source"


@pytest.mark.parametrize(("name", "label"), [("job", "Job"), ("instance", "Instance")])
def test_job_and_instance_are_variables(name: str, label: str) -> None:
    variable = VARIABLES[name]
    assert variable["type"] == "query"
    assert variable["label"] == label
    assert variable["multi"] is True
    assert variable["includeAll"] is True
    assert variable["allValue"] == ".+"
    assert variable["datasource"]["uid"] == "${datasource}"
    # The list follows the time range that is looked at, not the moment of loading.
    assert variable["refresh"] == 2


def test_instances_are_those_of_the_chosen_jobs() -> None:
    assert 'job=~"$job"' in VARIABLES["instance"]["query"]["query"]


@every_panel
def test_a_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["targets"]


@every_panel
def test_a_panel_asks_the_chosen_data_source(panel: dict[str, Any]) -> None:
    sources = [panel["datasource"], *(each["datasource"] for each in panel["targets"])]
    assert {(each["type"], each["uid"]) for each in sources} == {("prometheus", "${datasource}")}


@every_panel
def test_a_panel_has_a_unit(panel: dict[str, Any]) -> None:
    assert panel["fieldConfig"]["defaults"]["unit"]


@every_panel
def test_the_queries_of_a_panel_have_names_of_their_own(panel: dict[str, Any]) -> None:
    names = [each["refId"] for each in panel["targets"]]
    assert len(set(names)) == len(names)


def test_titles_and_ids_are_unique_where_they_must_be() -> None:
    ids = [each["id"] for each in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    places = [(each["title"], each["type"]) for each in PANELS]
    assert len(set(places)) == len(places)


def test_panels_stay_on_the_grid_and_do_not_overlap() -> None:
    grid = [each["gridPos"] for each in DASHBOARD["panels"]]
    assert all(each["x"] >= 0 and each["x"] + each["w"] <= GRID_COLUMNS for each in grid)
    overlapping = [pair for pair in combinations(grid, 2) if _overlap(*pair)]
    assert overlapping == []


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[start] < other[start] + other[length] and other[start] < one[start] + one[length]
        for start, length in (("x", "w"), ("y", "h"))
    )


@every_query
def test_a_query_obeys_job_and_instance(query: Query) -> None:
    selectors = re.findall(r"([\w:]+)\{([^}]*)\}", query.expr)
    assert {name for name, _ in selectors} == metric_names(query.expr)
    for name, matchers in selectors:
        # A recorded series has no instance any more.
        wanted = MATCHERS[:1] if ":" in name else MATCHERS
        assert all(each in matchers for each in wanted)


@every_query
def test_counters_are_read_by_rate_over_the_interval_that_grafana_picks(query: Query) -> None:
    for match in COUNTER.finditer(query.expr):
        assert query.expr[: match.start()].endswith("rate(")
    assert set(re.findall(r"\[([^\]]*)\]", query.expr)) <= {"$__rate_interval"}


@every_query
def test_a_legend_names_labels_that_the_query_keeps(query: Query) -> None:
    kept = {
        label.strip()
        for labels in re.findall(r"\bby \(([^)]*)\)", query.expr)
        for label in labels.split(",")
    }
    assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= kept
    assert query.legend


@every_query
def test_every_variable_of_a_query_is_known(query: Query) -> None:
    known = {"job": "j", "instance": "i", "__rate_interval": "1m"}
    assert "$" not in filled(query.expr, known)


def test_recorded_series_of_the_dashboard_are_recorded() -> None:
    recorded = {each["record"] for each in RECORDING}
    named = {name for query in QUERIES for name in metric_names(query.expr) if ":" in name}
    assert named <= recorded
    assert named


def provisioned(file: str) -> Any:
    """Read one file of Grafana's provisioning."""
    return yaml.safe_load((GRAFANA / "provisioning" / file).read_text())


def test_grafana_finds_its_data_source_and_the_dashboard() -> None:
    provisioning = ROOT / "deploy/grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)
    scrape = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["global"]
    assert source["jsonData"]["timeInterval"] == scrape["scrape_interval"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/haversack.yml").read_text())[
        "providers"
    ]
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    assert (
        f"./deploy/grafana/dashboards:{provider['options']['path']}:ro"
        in (compose["services"]["grafana"]["volumes"])
    )
