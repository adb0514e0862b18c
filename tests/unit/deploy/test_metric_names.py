"""The dashboard and the rules name metrics that the server has, and no label that it lacks."""

import re

import grpc
import pytest
from tests.unit.deploy.dashboard import ALERTS, QUERIES, RECORDING, metric_names

from haversack.v1 import service_pb2
from haversack.verify import VerifyVerdict
from haversack_server.service.metrics import Metrics

EXPRESSIONS = [each.expr for each in QUERIES]
EXPRESSIONS += [each["expr"] for each in [*ALERTS, *RECORDING]]
FROM_PROMETHEUS = {"up"}
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "histogram": ("_bucket", "_count", "_sum"),
}


@pytest.fixture(scope="module")
def served() -> set[str]:
    return {
        family.name + suffix
        for family in Metrics().registry.collect()
        for suffix in SUFFIXES[family.type]
    }


def test_names_are_found_in_what_we_write() -> None:
    assert metric_names('sum by (a, le) (rate(x_total{b=~"c"}[5m])) / ignoring (d) y_z') == {
        "x_total",
        "y_z",
    }
    assert metric_names("0.5 * one:two:three or max(four) > 1") == {"one:two:three", "four"}


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_a_query_names_metrics_that_there_are(served: set[str], expr: str) -> None:
    recorded = {each["record"] for each in RECORDING}
    assert metric_names(expr) - recorded - FROM_PROMETHEUS <= served
    assert metric_names(expr)


def values_of(label: str) -> set[str]:
    """Find the values that our expressions match a label against."""
    found = [each for expr in EXPRESSIONS for each in re.findall(rf'{label}!?=~?"([^"]*)"', expr)]
    return {value for values in found for value in values.split("|")}


def test_statuses_and_verdicts_are_spelled_as_the_server_spells_them() -> None:
    assert {"OK", "INTERNAL"} <= values_of("grpc_code") <= {each.name for each in grpc.StatusCode}
    assert {"FAILED"} <= values_of("verdict") <= {each.name for each in VerifyVerdict}
    service = service_pb2.DESCRIPTOR.services_by_name["HaversackService"]
    methods = {each.name for each in service.methods}
    assert {"Plan"} <= values_of("grpc_method") <= methods
