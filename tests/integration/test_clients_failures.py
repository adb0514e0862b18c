"""How a client fails: with an error of ours, in its time, and never by hanging."""

import asyncio
import contextlib
import multiprocessing
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from tests.integration.servers import PATIENCE_S, HeldPlans, served

from haversack import (
    AsyncClient,
    Client,
    DeadlineError,
    HaversackError,
    InternalError,
    InvalidRequestError,
    NotSupportedError,
    OverloadedError,
    UnavailableError,
    VerifyReport,
    VerifyRequest,
    WorkloadReference,
    _calls,
)
from haversack.v1 import verify_pb2
from haversack_server.service.app import Running

PLAN: dict[str, Any] = {"size_bytes": [1], "gain": [1], "budget_bytes": 1}
REQUEST = VerifyRequest(workload=WorkloadReference(name="mlp"))


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with served(rooms=HeldPlans().rooms) as running:
        yield running


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of something that listens and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def nobody() -> str:
    """The address of a port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_no_server_is_named_by_its_address(nobody: str) -> None:
    with Client(nobody) as client, pytest.raises(UnavailableError, match=f"at {nobody}: "):
        client.list_workloads()
    with Client(nobody) as client, pytest.raises(UnavailableError, match=f"at {nobody}: "):
        client.verify(REQUEST)


async def test_no_server_is_named_by_its_address_to_those_who_await(nobody: str) -> None:
    async with AsyncClient(nobody) as client:
        with pytest.raises(UnavailableError, match=f"at {nobody}: "):
            await client.list_workloads()
        with pytest.raises(UnavailableError, match=f"at {nobody}: "):
            await client.verify(REQUEST)


@contextlib.contextmanager
def refusing(code: grpc.StatusCode, times: int) -> Iterator[tuple[str, list[int]]]:
    """A server that ends calls with a status, without details, before it answers one."""
    calls: list[int] = []

    def answer(request: bytes, context: Any) -> bytes:
        calls.append(len(calls))
        if len(calls) <= times:
            context.abort(code, "not now")
        return b""

    with serving({"ListWorkloads": grpc.unary_unary_rpc_method_handler(answer)}) as target:
        yield target, calls


@contextlib.contextmanager
def serving(methods: dict[str, Any]) -> Iterator[str]:
    """The address of a server with handlers of our own."""
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("haversack.v1.HaversackService", methods),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_a_server_that_is_unavailable_for_a_moment_is_asked_again() -> None:
    with (
        refusing(grpc.StatusCode.UNAVAILABLE, times=2) as (target, calls),
        Client(target) as client,
    ):
        assert client.list_workloads().workloads == ()
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("code", "error_class"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, OverloadedError),
        (grpc.StatusCode.INTERNAL, InternalError),
        (grpc.StatusCode.UNIMPLEMENTED, NotSupportedError),
    ],
)
def test_nothing_else_is_asked_again(
    code: grpc.StatusCode, error_class: type[HaversackError]
) -> None:
    with (
        refusing(code, times=1) as (target, calls),
        Client(target) as client,
        pytest.raises(error_class, match="not now"),
    ):
        client.list_workloads()
    assert len(calls) == 1


def test_an_answer_of_a_newer_server_is_told_apart_from_a_wrong_request() -> None:
    workload = verify_pb2.WorkloadInfo(name="new")
    workload.expected_verdict = 99  # type: ignore[assignment]
    answer = verify_pb2.ListWorkloadsResponse(workloads=[workload])
    with pytest.raises(NotSupportedError, match="newer than this client"):
        _calls.LIST_WORKLOADS.incoming(answer)


def test_a_client_goes_on_with_the_next_server_at_its_address() -> None:
    with served() as first:
        client = Client(first.target)
        assert client.list_workloads().workloads
    with served(address=first.target):
        assert client.list_workloads().workloads
    client.close()


def test_a_deadline_ends_a_call(running: Running) -> None:
    with Client(running.target) as client, pytest.raises(DeadlineError, match="longer timeout"):
        client.plan_candidates(**PLAN, timeout=0.05)


async def test_a_deadline_ends_an_awaited_call(running: Running) -> None:
    async with AsyncClient(running.target) as client:
        with pytest.raises(DeadlineError, match="longer timeout"):
            await client.plan_candidates(**PLAN, timeout=0.05)


def test_a_stream_that_stays_silent_ends_too(silent: str) -> None:
    with Client(silent) as client, pytest.raises(DeadlineError, match=r"no event within 0\.05 s"):
        next(client.verify_events(REQUEST, timeout=0.05))


async def test_an_awaited_stream_that_stays_silent_ends_too(silent: str) -> None:
    async with AsyncClient(silent) as client:
        with pytest.raises(DeadlineError, match=r"no event within 0\.05 s"):
            await anext(client.verify_events(REQUEST, timeout=0.05))


@contextlib.contextmanager
def slow_to_end() -> Iterator[tuple[str, list[bool]]]:
    """A server whose Verify takes a while after the report; and whether it was let go of then."""
    let_go: list[bool] = []

    def answer(request: bytes, context: Any) -> Iterator[bytes]:
        gone = threading.Event()
        context.add_callback(gone.set)
        yield verify_pb2.VerifyResponse(report=verify_pb2.VerifyReport()).SerializeToString()
        let_go.append(gone.wait(0.3))

    with serving({"Verify": grpc.unary_stream_rpc_method_handler(answer)}) as target:
        yield target, let_go


def test_a_job_with_its_report_is_an_answered_call_and_not_a_cancelled_one() -> None:
    with slow_to_end() as (target, let_go), Client(target) as client:
        assert client.verify(REQUEST) == VerifyReport()
        assert let_go == [False]


async def test_an_awaited_job_with_its_report_is_an_answered_call_too() -> None:
    with slow_to_end() as (target, let_go):
        async with AsyncClient(target) as client:
            assert await client.verify(REQUEST) == VerifyReport()
        assert let_go == [False]


async def test_a_task_that_is_cancelled_cancels_its_call() -> None:
    held = HeldPlans()
    with served(rooms=held.rooms) as running:
        async with AsyncClient(running.target) as client:
            task = asyncio.create_task(client.plan_candidates(**PLAN))
            assert await asyncio.to_thread(held.began.acquire, timeout=PATIENCE_S)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(held.ended.acquire, timeout=PATIENCE_S)
    assert held.told_to_stop == 1


def test_a_closed_client_says_so(running: Running) -> None:
    client = Client(running.target)
    client.close()
    client.close()
    with pytest.raises(HaversackError, match="closed"):
        client.list_workloads()


async def test_a_closed_awaiting_client_says_so(running: Running) -> None:
    client = AsyncClient(running.target)
    await client.list_workloads()
    await client.close()
    with pytest.raises(HaversackError, match="closed"):
        await client.list_workloads()


def test_prefixes_are_not_for_a_server_that_has_its_own(running: Running) -> None:
    for make in (Client, AsyncClient):
        with pytest.raises(InvalidRequestError, match="own configuration"):
            make(running.target, allow=["mypkg."])
        with pytest.raises(InvalidRequestError, match="the address is empty"):
            make("")


def in_a_child(client: Client, answers: Any) -> None:
    try:
        client.list_workloads()
    except HaversackError as error:
        client.close()
        answers.put(str(error))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_client_that_was_forked_says_so_instead_of_hanging(running: Running) -> None:
    context = multiprocessing.get_context("fork")
    with Client(running.target) as client:
        client.list_workloads()
        answers = context.SimpleQueue()
        child = context.Process(target=in_a_child, args=(client, answers))
        child.start()
        child.join(PATIENCE_S)
        assert child.exitcode == 0
        sentence = answers.get()
        assert "does not survive a fork" in sentence
        assert "start a fresh process" in sentence
        assert "close the client before the fork" in sentence
        assert client.list_workloads().workloads


@pytest.mark.parametrize("scheme", ["http_proxy", "https_proxy", "grpc_proxy"])
def test_a_proxy_in_the_environment_is_none_for_the_loopback(
    running: Running, scheme: str, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(scheme, f"http://{nobody}")
    monkeypatch.delenv("no_proxy", raising=False)
    with Client(running.target) as client:
        assert client.list_workloads().workloads


def test_other_targets_keep_their_proxy() -> None:
    assert ("grpc.enable_http_proxy", 0) in _calls.channel_options("localhost:1")
    assert ("grpc.enable_http_proxy", 0) in _calls.channel_options("[::1]:1")
    assert ("grpc.enable_http_proxy", 0) not in _calls.channel_options("haversack.example:1")
    assert ("grpc.enable_http_proxy", 0) not in _calls.channel_options("unix:/a")
