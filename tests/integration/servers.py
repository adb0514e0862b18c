"""Servers for tests: the real one on a free port, with rooms that a test may replace."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any
from urllib.request import ProxyHandler, build_opener

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from numpy.typing import NDArray

from haversack.errors import DeadlineError
from haversack.estimate import Estimate, EstimateRequest
from haversack.plan import Candidates, Plan, PlanRequest, PlanStatus
from haversack.run import Budget
from haversack.v1.service_pb2_grpc import HaversackServiceStub
from haversack_server.service.app import Running, serving
from haversack_server.service.rooms import Rooms
from haversack_server.service.settings import Settings

PATIENCE_S = 60  # how long a test waits for what must happen; never how long it takes


@contextlib.contextmanager
def served(
    settings: Settings | None = None, rooms: Rooms | None = None, address: str = "127.0.0.1:0"
) -> Iterator[Running]:
    """Serve on a loop of its own, in a thread, so that a test may block."""
    ready: Future[Running] = Future()
    leave: Future[None] = Future()

    async def main() -> None:
        async with serving(address, settings, rooms) as running:
            ready.set_result(running)
            await asyncio.wrap_future(leave)

    def serve() -> None:
        try:
            asyncio.run(main())
        except BaseException as failure:
            if ready.done():
                raise
            ready.set_exception(failure)

    thread = threading.Thread(target=serve, name="test-server")
    thread.start()
    try:
        yield ready.result(PATIENCE_S)
    finally:
        leave.set_result(None)
        thread.join()


@dataclass
class HeldPlans:
    """A plan room whose solves run until they are released, or told to stop."""

    began: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    released: threading.Event = field(default_factory=threading.Event)
    told_to_stop: int = 0

    def plan(self, request: PlanRequest, cancel: NDArray[np.uint8]) -> Plan:
        self.began.release()
        try:
            while not self.released.wait(0.001):
                if cancel[0]:
                    self.told_to_stop += 1
                    raise RuntimeError("stopped")
            return Plan(status=PlanStatus.OPTIMAL, solver="held")
        finally:
            self.ended.release()

    @property
    def rooms(self) -> Rooms:
        return Rooms(estimate=fixed_estimate, plan=self.plan)


def exposition(url: str) -> list[str]:
    """The lines of /metrics."""
    opener = build_opener(ProxyHandler({}))  # the environment's proxy is not for the loopback
    with opener.open(url, timeout=PATIENCE_S) as page:
        return str(page.read().decode()).splitlines()


def metrics_of(running: Running) -> list[str]:
    """The lines of a server's /metrics."""
    return exposition(f"http://127.0.0.1:{running.metrics_port}/metrics")


def metric(running: Running, series: str) -> float:
    """The value of one series."""
    return float(next(each for each in metrics_of(running) if each.startswith(series)).split()[-1])


def eventually(look: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    """Look until it is so, or patience ends."""
    ends_at = time.monotonic() + patience_s
    while not look():
        if time.monotonic() > ends_at:
            return False
        time.sleep(0.01)
    return True


def past_a_deadline(ask: Callable[[float], object], is_seen: Callable[[], bool]) -> None:
    """Ask with longer and longer deadlines, until the server was seen to have worked up to one.

    A short one may pass before a busy machine has the request where it is to be seen.
    """
    for timeout_s in (0.3, 3.0, 20.0):
        with pytest.raises(DeadlineError):
            ask(timeout_s)
        if eventually(is_seen, patience_s=timeout_s):
            return
    raise AssertionError("no deadline was long enough for the server to begin")


def stub_of(channel: grpc.Channel) -> Any:
    """The generated stub, for messages of any type."""
    return HaversackServiceStub(channel)


def health_of(channel: grpc.Channel) -> Any:
    """The stub of the health service, which has no types."""
    return health_pb2_grpc.HealthStub(channel)


def is_serving(channel: grpc.Channel, service: str = "") -> bool:
    """Ask whether the server says that it serves."""
    request = health_pb2.HealthCheckRequest(service=service)
    answer = health_of(channel).Check(request, timeout=PATIENCE_S)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def fixed_estimate(request: EstimateRequest, stop: Callable[[], bool]) -> Estimate:
    return Estimate(steady_bytes=request.parameter_count or 0)


def hard_request(state_limit: int = 2**28) -> PlanRequest:
    """A plan that takes as long as its limit of states lets it, minutes at most.

    Strongly correlated columns: sizes in a narrow range, gains a constant above them.

    Even sizes and an odd budget, so that no bound closes and every sum must be looked at.
    """
    random = np.random.default_rng(7)
    size_bytes = [2 * int(half) for half in random.integers(2**38, 2**39, 400)]
    gain = [size // 2 + 2**34 for size in size_bytes]
    return PlanRequest(
        candidates=Candidates(size_bytes=tuple(size_bytes), gain=tuple(gain)),
        budget=Budget(bytes=sum(size_bytes) // 2 | 1),
        state_limit=state_limit,
        frontier_points=0,
    )
