"""How a client fails: with an error of ours, in its time, and never by hanging."""

import asyncio
import multiprocessing
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.servers import PATIENCE_S, HeldPlans, served

from haversack import (
    AsyncClient,
    Client,
    DeadlineError,
    HaversackError,
    InvalidRequestError,
    UnavailableError,
    VerifyRequest,
    WorkloadReference,
    _calls,
)
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
        assert "does not survive a fork" in answers.get()
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
