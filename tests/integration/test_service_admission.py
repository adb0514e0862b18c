"""A full server refuses at once and says when to come back; health stays free."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from tests.integration.servers import PATIENCE_S, HeldPlans, is_serving, metrics_of, served, stub_of

from haversack import Client, OverloadedError, Plan, PlanStatus, _calls, status
from haversack.v1 import estimate_pb2
from haversack_server.service.app import Running
from haversack_server.service.settings import Settings


@pytest.fixture
def held() -> HeldPlans:
    return HeldPlans()


@pytest.fixture
def full(held: HeldPlans) -> Iterator[Running]:
    """A server that takes one call, and has it."""
    settings = Settings(max_in_flight=1, metrics_port=0)
    with (
        served(settings, held.rooms) as running,
        Client(running.target) as client,
        ThreadPoolExecutor(1) as caller,
    ):
        planned = caller.submit(plan_anything, client)
        assert held.began.acquire(timeout=PATIENCE_S)
        yield running
        held.released.set()
        assert planned.result(PATIENCE_S).status is PlanStatus.OPTIMAL


def plan_anything(client: Client) -> Plan:
    return client.plan_candidates(size_bytes=[1], gain=[1], budget_bytes=1)


def refusal(running: Running) -> Any:
    with grpc.insecure_channel(running.target) as channel:
        stub = stub_of(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Estimate(estimate_pb2.EstimateRequest(parameter_count=1), timeout=PATIENCE_S)
    return caught.value


def test_a_call_above_the_limit_is_told_when_to_come_back(full: Running) -> None:
    refused = refusal(full)
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    trailers = dict(refused.trailing_metadata())
    assert trailers["grpc-retry-pushback-ms"] == "100"
    error = status.error_of("RESOURCE_EXHAUSTED", "", trailers[status.DETAILS_KEY])
    assert isinstance(error, OverloadedError)
    assert error.retry_after_ns == 100_000_000
    assert str(error).startswith("1 calls are in flight")


def test_health_answers_while_the_server_is_full(full: Running) -> None:
    with grpc.insecure_channel(full.target) as channel:
        assert is_serving(channel)


def test_what_was_refused_and_what_runs_is_counted(full: Running) -> None:
    refusal(full)
    lines = metrics_of(full)
    assert 'haversack_admission_rejected_total{reason="in_flight"} 1.0' in lines
    assert "haversack_in_flight 1.0" in lines


def test_a_client_comes_back_until_there_is_room(
    full: Running, held: HeldPlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            held.released.set()
            assert held.ended.acquire(timeout=PATIENCE_S)
        elif len(waits) > 2:  # the solve has ended, its call not quite yet
            threading.Event().wait(seconds)

    monkeypatch.setattr("haversack._sync.time.sleep", sleep)
    with Client(full.target) as client:
        assert client.estimate(parameter_count=5).steady_bytes == 5
    assert waits[:2] == [0.1, 0.2]


def test_a_client_gives_up_in_the_end(full: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("haversack._sync.time.sleep", waits.append)
    with Client(full.target) as client, pytest.raises(OverloadedError):
        client.estimate(parameter_count=5)
    assert len(waits) == _calls.MOST_ATTEMPTS - 1


def test_a_client_does_not_wait_past_its_deadline() -> None:
    attempts = _calls.Attempts(timeout=10.0)
    attempts.wait_after(OverloadedError("busy", retry_after_ns=10**9), RuntimeError())
    with pytest.raises(OverloadedError):
        attempts.wait_after(OverloadedError("busy", retry_after_ns=6 * 10**9), RuntimeError())
