"""Nothing runs on after a deadline or a cancel, and health answers while solvers run."""

import threading
import time
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.integration.servers import (
    PATIENCE_S,
    HeldPlans,
    hard_request,
    is_serving,
    metrics_of,
    past_a_deadline,
    served,
    stub_of,
)

from haversack import (
    Budget,
    CallCancelledError,
    Candidates,
    Client,
    Estimate,
    EstimateRequest,
    Plan,
    PlanRequest,
    wire,
)
from haversack_server.plan.answer import plan as solve
from haversack_server.service import app
from haversack_server.service.app import Running
from haversack_server.service.rooms import Rooms
from haversack_server.service.servicer import ESTIMATE_THREADS
from haversack_server.service.settings import Settings


class CountedSolves:
    """The real plan room, with a count of what runs in it."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._running = 0
        self.began = 0

    def plan(self, request: PlanRequest, cancel: NDArray[np.uint8]) -> Plan:
        self._count(1)
        try:
            return solve(request, cancel)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._change:
            self._running += change
            self.began += change > 0
            self._change.notify_all()

    def wait_until(self, running: int) -> bool:
        with self._change:
            return self._change.wait_for(lambda: self._running == running, PATIENCE_S)


class CountedEstimates:
    """An estimate room that asks, without end, whether it is to stop."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)

    def estimate(self, request: EstimateRequest, stop: Callable[[], bool]) -> Estimate:
        if not request.parameter_count:
            return Estimate()
        self.began.release()
        while not stop():
            time.sleep(0.001)
        self.ended.release()
        raise CallCancelledError("told to stop")


@pytest.fixture(scope="module")
def solves() -> CountedSolves:
    return CountedSolves()


@pytest.fixture(scope="module")
def running(solves: CountedSolves) -> Iterator[Running]:
    rooms = Rooms(plan=solves.plan)
    rooms.warm()
    with served(Settings(solver_threads=2), rooms) as running:
        yield running


def test_no_solver_is_alive_after_the_deadline(running: Running, solves: CountedSolves) -> None:
    began = solves.began
    with Client(running.target) as client:
        past_a_deadline(
            lambda timeout_s: client.plan(hard_request(), timeout=timeout_s),
            lambda: solves.began > began,
        )
    assert solves.wait_until(running=0)


def test_no_solver_is_alive_after_the_caller_cancels(
    running: Running, solves: CountedSolves
) -> None:
    message = wire.message_of(hard_request())
    with grpc.insecure_channel(running.target) as channel:
        call = stub_of(channel).Plan.future(message)
        assert solves.wait_until(running=1)
        call.cancel()
        assert solves.wait_until(running=0)


def test_no_solver_is_alive_after_the_caller_is_gone(
    running: Running, solves: CountedSolves
) -> None:
    channel = grpc.insecure_channel(running.target)
    stub = stub_of(channel)
    call = stub.Plan.future(wire.message_of(hard_request()))
    assert solves.wait_until(running=1)
    channel.close()
    assert solves.wait_until(running=0)
    assert call.done()


def test_health_answers_while_every_thread_solves(running: Running, solves: CountedSolves) -> None:
    message = wire.message_of(hard_request())
    with grpc.insecure_channel(running.target) as channel:
        stub = stub_of(channel)
        calls = [stub.Plan.future(message) for _ in range(2)]
        assert solves.wait_until(running=2)
        for _ in range(20):
            assert is_serving(channel)
        assert not any(call.done() for call in calls)
        for call in calls:
            call.cancel()
        assert solves.wait_until(running=0)


def test_a_solve_that_waits_for_a_thread_never_begins_once_its_deadline_passed() -> None:
    held = HeldPlans()
    request = PlanRequest(candidates=Candidates(size_bytes=(1,), gain=(1,)), budget=Budget(bytes=1))
    with (
        served(Settings(solver_threads=1, metrics_port=0), held.rooms) as running,
        Client(running.target) as client,
    ):
        with grpc.insecure_channel(running.target) as channel:
            stub = stub_of(channel)
            first = stub.Plan.future(wire.message_of(request))
            assert held.began.acquire(timeout=PATIENCE_S)
            past_a_deadline(
                lambda timeout_s: client.plan(request, timeout=timeout_s),
                lambda: any("DEADLINE_EXCEEDED" in each for each in metrics_of(running)),
            )
            held.released.set()
            first.result(PATIENCE_S)
        client.plan(request)
    assert held.began.acquire(blocking=False)  # the plan after it
    assert not held.began.acquire(blocking=False)  # and none for the one that waited


def test_estimates_past_their_deadline_leave_their_threads_to_others() -> None:
    room = CountedEstimates()
    with served(rooms=Rooms(estimate=room.estimate)) as running, Client(running.target) as client:
        for _ in range(ESTIMATE_THREADS + 1):  # one more than there are threads
            past_a_deadline(
                lambda timeout_s: client.estimate(parameter_count=1, timeout=timeout_s),
                lambda: room.began.acquire(blocking=False),
            )
            assert room.ended.acquire(timeout=PATIENCE_S)
        assert client.estimate(parameter_count=0, timeout=PATIENCE_S).request_digest


def test_stopping_the_server_stops_its_estimates() -> None:
    room = CountedEstimates()
    with served(Settings(grace_s=0.0), Rooms(estimate=room.estimate)) as running:
        channel = grpc.insecure_channel(running.target)
        call = stub_of(channel).Estimate.future(wire.message_of(EstimateRequest(parameter_count=1)))
        assert room.began.acquire(timeout=PATIENCE_S)
    assert room.ended.acquire(blocking=False)
    assert call.code() is not grpc.StatusCode.OK
    channel.close()


def test_a_server_stops_though_its_work_does_not(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_LAST_STEPS_S", 0.1)
    began, release = threading.Event(), threading.Event()

    def deaf(request: EstimateRequest, stop: Callable[[], bool]) -> Estimate:
        began.set()
        release.wait()
        return Estimate()

    try:
        with served(Settings(grace_s=0.0), Rooms(estimate=deaf)) as running:
            channel = grpc.insecure_channel(running.target)
            request = wire.message_of(EstimateRequest(parameter_count=1))
            call = stub_of(channel).Estimate.future(request)
            assert began.wait(PATIENCE_S)
        assert call.code() is not grpc.StatusCode.OK
        assert "haversack-estimate: 1 still at work" in caplog.text
        channel.close()
    finally:
        release.set()


def test_stopping_the_server_stops_its_solvers() -> None:
    held = HeldPlans()
    request = PlanRequest(candidates=Candidates(size_bytes=(1,), gain=(1,)), budget=Budget(bytes=1))
    with served(Settings(grace_s=0.0), held.rooms) as running:
        channel = grpc.insecure_channel(running.target)
        call = stub_of(channel).Plan.future(wire.message_of(request))
        assert held.began.acquire(timeout=PATIENCE_S)
    assert held.ended.acquire(blocking=False)
    assert held.told_to_stop == 1
    assert call.code() is not grpc.StatusCode.OK
    channel.close()
