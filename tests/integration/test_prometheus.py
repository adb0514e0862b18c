"""A real Prometheus scrapes a real server with deploy's own files, and answers the dashboard.

Everything runs on the loopback, on free ports, and ends with the test.
"""

import contextlib
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from tests.integration.real_prometheus import (
    BOUND_S,
    Prometheus,
    adapted,
    eventually,
    fetch,
    free_port,
    running,
)
from tests.unit.deploy.dashboard import (
    ALERTS,
    PROMETHEUS,
    QUERIES,
    RECORDING,
    ROOT,
    Query,
    filled,
    metric_names,
)

import haversack
from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateRequest
from haversack.run import Document, DocumentFormat
from haversack.v1 import estimate_pb2
from haversack.v1.service_pb2_grpc import HaversackServiceStub
from haversack.verify import VerifyVerdict

pytestmark = pytest.mark.slow

LONGEST_CALL_S = 60
# The interval that Grafana would pick for our scrape interval of 15 s.
VARIABLES = {"job": "haversack", "instance": ".+", "__rate_interval": "1m"}
MODEL = ROOT / "examples/llama3_8b.json"
METHODS = {"Estimate", "Plan", "Verify"}


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: where it answers, and its process."""

    target: str
    metrics_url: str
    process: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("server") / "log"
    listen = ["--listen", "127.0.0.1:0", "--metrics-port", "0", "--max-in-flight", "1"]
    command = [sys.executable, "-m", "haversack_server.service", *listen]
    with running(command, log) as process:

        def ready() -> re.Match[str] | None:
            assert process.poll() is None, log.read_text()
            return re.search(r"serves on (\S+), metrics on (\S+)", log.read_text())

        said = eventually("a server that is ready", ready)
        yield Server(target=said[1], metrics_url=said[2], process=process)


@pytest.fixture(scope="module")
def prometheus(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    place = f"127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={adapted(server.metrics_url, folder)}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={place}"]
    with running(command, folder / "log") as process:
        started = Prometheus(f"http://{place}")

        def ready() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            with contextlib.suppress(OSError):
                return started.scrapes() >= 1
            return False

        eventually("a first scrape", ready)
        make_calls(server.target)
        started.wait_for_scrapes(2)
        # A rate is a difference: series that the first calls made grow with the second.
        make_calls(server.target)
        started.wait_for_scrapes(2)
        yield started


def make_calls(target: str) -> None:
    """Make every call, well and badly, one that is refused among them."""
    with haversack.Client(target) as client:
        client.estimate(parameter_count=1000, gpus=4, zero=3)
        client.plan_candidates(size_bytes=[3, 2, 2], gain=[5, 3, 3], budget_bytes=4)
        client.plan_model(model=MODEL, gpus=8, gpu_memory="80GiB", zero=3, seq=8192, microbatch=2)
        unknown = Document(format=DocumentFormat.HF_CONFIG, text='{"model_type": "no-such-family"}')
        with pytest.raises(InvalidRequestError):
            client.estimate(EstimateRequest(documents=(unknown,)))
        verify_while_another_is_refused(client, target)


def verify_while_another_is_refused(client: haversack.Client, target: str) -> None:
    """Verify, and ask for more than the one call that the server takes at once."""
    begun = threading.Event()
    reports: list[Any] = []

    def verify() -> None:
        reports.append(client.verify(workload="gpt2-tiny", on_event=lambda event: begun.set()))

    job = threading.Thread(target=verify)
    job.start()
    assert begun.wait(BOUND_S)
    # Not through our client, which comes back when it is told to.
    with grpc.insecure_channel(target, [("grpc.enable_http_proxy", 0)]) as channel:
        message = estimate_pb2.EstimateRequest(parameter_count=1000)
        with pytest.raises(grpc.RpcError) as refused:
            HaversackServiceStub(channel).Estimate(message, timeout=LONGEST_CALL_S)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    job.join(BOUND_S)
    assert [each.verdict for each in reports] == [VerifyVerdict.EQUIVALENT]


def promtool(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = ["promtool", *arguments]
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=LONGEST_CALL_S, check=False
    )


def test_prometheus_takes_the_configuration_and_the_rules() -> None:
    done = promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_and_is_silent_when_it_should() -> None:
    done = promtool("test", "rules", str(ROOT / "tests/unit/deploy/alerts.test.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_in_what_is_served(server: Server, prometheus: Prometheus) -> None:
    done = promtool("check", "metrics", text=fetch(server.metrics_url))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_panel_has_data(prometheus: Prometheus, query: Query) -> None:
    found = prometheus.samples(filled(query.expr, VARIABLES))
    assert found
    if "grpc_method" in query.legend:
        assert {labels["grpc_method"] for labels, _ in found} >= METHODS


@pytest.mark.parametrize("rule", RECORDING, ids=lambda rule: str(rule["record"]))
def test_a_recorded_series_has_data(prometheus: Prometheus, rule: dict[str, Any]) -> None:
    assert prometheus.samples(rule["record"])


def test_prometheus_evaluates_every_rule(prometheus: Prometheus) -> None:
    groups = prometheus.get("rules")["groups"]
    found = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert set(found) == {each.get("alert") or each["record"] for each in [*ALERTS, *RECORDING]}
    assert {name: rule["health"] for name, rule in found.items()} == dict.fromkeys(found, "ok")


def test_alerts_name_series_that_are_served(prometheus: Prometheus) -> None:
    named = {name for alert in ALERTS for name in metric_names(alert["expr"])}
    assert [name for name in sorted(named) if not prometheus.samples(name)] == []


def test_what_was_counted_is_what_was_called(prometheus: Prometheus) -> None:
    def counted(method: str, code: str) -> float:
        selector = f'grpc_method="{method}", grpc_code="{code}"'
        return sum(v for _, v in prometheus.samples(f"grpc_server_handled_total{{{selector}}}"))

    assert counted("Plan", "OK") == 4
    assert counted("Verify", "OK") == 2
    assert counted("Estimate", "OK") == 2
    assert counted("Estimate", "INVALID_ARGUMENT") == 2
    assert counted("Estimate", "RESOURCE_EXHAUSTED") >= 2


def test_the_variables_of_the_dashboard_have_values(prometheus: Prometheus) -> None:
    assert prometheus.get("label/job/values", **{"match[]": "haversack_build_info"}) == [
        "haversack"
    ]
    assert len(prometheus.get("label/instance/values", **{"match[]": "haversack_build_info"})) == 1


def test_the_health_check_of_the_container_sees_the_server(server: Server) -> None:
    def checked(target: str) -> tuple[int, str]:
        command = [sys.executable, str(ROOT / "deploy/healthcheck.py"), target]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST_CALL_S, check=False
        )
        return done.returncode, done.stdout

    assert checked(server.target) == (0, f"{server.target}: SERVING\n")
    code, said = checked(f"127.0.0.1:{free_port()}")
    assert code == 1
    assert "UNAVAILABLE" in said


def test_a_server_that_stops_is_soon_missed(server: Server, prometheus: Prometheus) -> None:
    # The last test of the module: it ends the server, which drains and says that all is well.
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(timeout=LONGEST_CALL_S) == 0

    def pending() -> bool:
        alerts = prometheus.get("alerts")["alerts"]
        return "HaversackDown" in {each["labels"]["alertname"] for each in alerts}

    eventually("the alert", pending)
