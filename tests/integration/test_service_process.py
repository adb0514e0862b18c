"""The process of a service: says when it is ready, drains when told, fails in one sentence."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.integration.servers import (
    PATIENCE_S,
    exposition,
    hard_request,
    health_of,
    is_serving,
    stub_of,
)

from haversack import Client, PlanRequest, PlanStatus, UnavailableError, wire
from haversack.v1 import service_pb2, verify_pb2

ROOT = Path(__file__).parents[2]
READY = re.compile(r"serves on (\S+), metrics on (\S+)")
LONGEST_START_S = 120  # compiling kernels on a busy machine


@dataclass
class Service:
    process: "subprocess.Popen[str]"
    target: str
    metrics_url: str


# A warm-up that never ends, and tells of itself as the kernels do.
ENDLESS = """
import logging, sys, threading
from haversack_server.plan import warmup
from haversack_server.service.__main__ import main

def warm():
    logging.getLogger("haversack_kernels.cache").info("compiles its kernels, for ever")
    threading.Event().wait()

warmup.warm = warm
sys.exit(main())
"""


def start(
    *arguments: str, code: tuple[str, ...] = ("-m", "haversack_server.service")
) -> "subprocess.Popen[str]":
    path = os.pathsep.join(str(ROOT / each) for each in ("client", "kernels", "server"))
    return subprocess.Popen(
        [sys.executable, *code, *arguments],
        env=os.environ | {"PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def service(*arguments: str) -> Iterator[Service]:
    process = start("--listen", "127.0.0.1:0", "--metrics-port", "0", *arguments)
    assert process.stderr is not None
    alarm = threading.Timer(LONGEST_START_S, process.kill)
    alarm.start()
    try:
        said = ""
        while (ready := READY.search(line := process.stderr.readline())) is None:
            said += line  # that a first start compiles
            assert line, said
        yield Service(process, ready[1], ready[2])
    finally:
        alarm.cancel()
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    with service() as running:
        yield running


def test_it_answers_and_says_that_it_is_healthy(running: Service) -> None:
    with Client(running.target) as client:
        plan = client.plan_candidates(size_bytes=[3, 2, 2], gain=[5, 3, 3], budget_bytes=4)
    assert (plan.total_gain, plan.saved) == (6, (1, 2))
    with grpc.insecure_channel(running.target) as channel:
        for name in ("", "haversack.v1.HaversackService"):
            assert is_serving(channel, name)


def test_its_metrics_are_as_promtool_wants_them(running: Service) -> None:
    with Client(running.target) as client:
        client.estimate(parameter_count=1000)
        client.plan_candidates(size_bytes=[3], gain=[5], budget_bytes=4)
        client.list_workloads()
    text = "\n".join(exposition(running.metrics_url)) + "\n"
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    labels = 'grpc_method="Estimate",grpc_service="haversack.v1.HaversackService",grpc_type="unary"'
    assert f'grpc_server_handled_total{{grpc_code="OK",{labels}}} 1.0' in text
    assert f"grpc_server_handling_seconds_count{{{labels}}} 1.0" in text
    assert "_created" not in text
    methods = service_pb2.DESCRIPTOR.services_by_name["HaversackService"].methods
    counted = re.findall("^grpc_server_handling_seconds_count", text, re.MULTILINE)
    assert len(counted) == len(methods)


def test_reflection_lists_the_service(running: Service) -> None:
    with grpc.insecure_channel(running.target) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=PATIENCE_S)
    assert {each.name for each in answer.list_services_response.service} >= {
        "haversack.v1.HaversackService",
        "grpc.health.v1.Health",
    }


def test_a_start_that_compiles_says_so_and_ends_when_it_is_told_to() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{free.getsockname()[1]}"
    process = start("--listen", target, "--metrics-port", "0", code=("-c", ENDLESS))
    assert process.stderr is not None
    alarm = threading.Timer(LONGEST_START_S, process.kill)
    alarm.start()
    try:
        line = process.stderr.readline()
        assert line == "haversack serve: compiles its kernels, for ever\n"
        with grpc.insecure_channel(target) as channel:
            assert not is_serving(channel)
        process.send_signal(signal.SIGTERM)
        assert process.stderr.read().splitlines()[-2:] == [
            "haversack serve: drains before it was ready: running calls may finish",
            "haversack serve: stopped",
        ]
        assert process.wait() == 0
    finally:
        alarm.cancel()
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_taken_port_is_one_sentence(running: Service) -> None:
    process = start("--listen", running.target, "--metrics-port", "0")
    _, said = process.communicate(timeout=LONGEST_START_S)
    assert process.returncode == 1
    assert said == (
        f"haversack serve: cannot listen on {running.target}: Address already in use; "
        "give another address\n"
    )


def test_a_host_that_is_none_of_this_machine_s_is_not_laid_to_the_port_of_metrics() -> None:
    process = start("--listen", "192.0.2.1:0", "--metrics-port", "0")  # of RFC 5737, for nobody
    _, said = process.communicate(timeout=LONGEST_START_S)
    assert process.returncode == 1
    assert said.startswith("haversack serve: cannot listen on 192.0.2.1:0: ")
    assert said.count("\n") == 1


def test_a_taken_metrics_port_is_one_sentence(running: Service) -> None:
    port = running.metrics_url.rpartition(":")[2].partition("/")[0]
    process = start("--listen", "127.0.0.1:0", "--metrics-port", port)
    _, said = process.communicate(timeout=LONGEST_START_S)
    assert process.returncode == 1
    assert said.startswith(f"haversack serve: cannot serve metrics on 127.0.0.1:{port}: Address")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--listen", "127.0.0.1:65536"),
        ("--metrics-port", "65536"),
        ("--listen", "nowhere"),
        ("--grace", "soon"),
        ("--what",),
    ],
)
def test_an_option_that_will_not_do_is_one_sentence(arguments: tuple[str, ...]) -> None:
    process = start(*arguments)
    _, said = process.communicate(timeout=LONGEST_START_S)
    assert process.returncode == 2
    assert said.startswith("haversack serve: ")
    assert said.count("\n") == 1


def test_it_drains_when_it_is_told_to_stop() -> None:
    with service() as draining, grpc.insecure_channel(draining.target) as channel:
        watched = watch(channel)
        plan = plan_under_way(channel, hard_request(state_limit=2_000_000))
        draining.process.send_signal(signal.SIGTERM)
        assert next(watched).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert plan.result().status == PlanStatus.FEASIBLE
        _, said = draining.process.communicate(timeout=PATIENCE_S)
    assert draining.process.returncode == 0
    assert said.splitlines() == [
        "haversack serve: drains: running calls may finish",
        "haversack serve: stopped",
    ]
    with Client(draining.target) as client, pytest.raises(UnavailableError):
        client.list_workloads()


def test_what_does_not_finish_within_the_grace_is_ended() -> None:
    with service("--grace", "0") as draining, grpc.insecure_channel(draining.target) as channel:
        plan = plan_under_way(channel, hard_request())
        draining.process.send_signal(signal.SIGTERM)
        _, said = draining.process.communicate(timeout=PATIENCE_S)
        assert plan.code() is not grpc.StatusCode.OK
    assert draining.process.returncode == 0
    assert "Traceback" not in said


def test_a_second_signal_ends_it_at_once() -> None:
    with service("--grace", "600") as draining, grpc.insecure_channel(draining.target) as channel:
        plan = plan_under_way(channel, hard_request())
        draining.process.send_signal(signal.SIGTERM)
        assert draining.process.stderr is not None
        assert "drains" in draining.process.stderr.readline()
        assert not plan.done()
        draining.process.send_signal(signal.SIGTERM)
        assert draining.process.wait(PATIENCE_S) == -signal.SIGTERM


def watch(channel: grpc.Channel) -> Any:
    """Follow the health, as load balancers do; it is SERVING now."""
    watched = health_of(channel).Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
    assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
    return watched


def plan_under_way(channel: grpc.Channel, request: PlanRequest) -> Any:
    """Ask for a plan; the server has taken the call once it answers a later one."""
    stub = stub_of(channel)
    plan = stub.Plan.future(wire.message_of(request), timeout=PATIENCE_S)
    stub.ListWorkloads(verify_pb2.ListWorkloadsRequest(), timeout=PATIENCE_S)
    return plan
