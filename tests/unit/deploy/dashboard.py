"""The dashboard and the rules as tests read them: panels, queries, and the metrics these name.

Knows the few forms of PromQL that we write, not the language; Prometheus itself reads the queries
in tests/integration/test_prometheus.py.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "deploy/prometheus"
GRAFANA = ROOT / "deploy/grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards/haversack.json").read_text())
PANELS: list[dict[str, Any]] = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}

_NOT_METRICS = re.compile(
    r"""
    "[^"]*" | \{[^}]*\} | \[[^\]]*\]                        # strings, selectors, ranges
    | \b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)   # lists of labels
    | \b[a-z_]+\s*(?=\()                                    # functions
    | \b(?:and|or|unless|bool|offset|group_left|group_right|sum|min|max|avg|count)\b
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    panel: str
    expr: str
    legend: str

    def __str__(self) -> str:
        return f"{self.panel}: {self.legend}"


QUERIES = [
    Query(panel["title"], target["expr"], target["legendFormat"])
    for panel in PANELS
    for target in panel["targets"]
]


def rules(file: str) -> list[dict[str, Any]]:
    """Read the rules of one file under deploy/prometheus."""
    groups = yaml.safe_load((PROMETHEUS / file).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


RECORDING = rules("recording.yml")
ALERTS = rules("alerts.yml")


def metric_names(expr: str) -> set[str]:
    """Find the time series that a query reads, recorded ones (with a colon) included."""
    return set(re.findall(r"[a-zA-Z_][\w:]*", _NOT_METRICS.sub(" ", expr)))


def filled(expr: str, values: Mapping[str, str]) -> str:
    """Fill in the variables of a query, as Grafana does before it asks."""
    return re.sub(r"\$(\w+)", lambda match: values[match[1]], expr)
