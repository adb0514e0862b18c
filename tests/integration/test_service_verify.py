"""Verify over the wire: a stream that is let go of, a job that is stopped, what the metrics see."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.servers import PATIENCE_S, eventually, metric, served

from haversack import (
    AsyncClient,
    CallCancelledError,
    Client,
    FailureReason,
    HaversackError,
    InvalidRequestError,
    JobState,
    NotFoundError,
    UnavailableError,
    VerifyEvent,
    VerifyRequest,
    VerifyVerdict,
    WorkloadReference,
)
from haversack_server.service.app import Running
from haversack_server.service.settings import Settings

RUNNING = 'haversack_verify_jobs{state="RUNNING"}'
FAILED = 'haversack_verify_jobs_finished_total{verdict="FAILED"}'
SLEEPS = "import time\n\n\ndef build():\n    time.sleep(3600)\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("packages")
    (folder / "sleepy.py").write_text(SLEEPS)
    settings = Settings(allow=("sleepy",), worker_path=(str(folder),), metrics_port=0)
    with served(settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[Client]:
    with Client(running.target) as client:
        yield client


def sleeper(job_id: str, *, keep: bool = False) -> VerifyRequest:
    return VerifyRequest(
        job_id=job_id,
        workload=WorkloadReference(entry_point="sleepy:build"),
        keep_after_disconnect=keep,
    )


def until_running(events: Iterator[VerifyEvent]) -> VerifyEvent:
    """Follow a job until it runs; the worker may have to start first."""
    return next(event for event in events if event.running is not None)


def test_a_job_that_is_cancelled_tells_its_stream_and_its_metrics(
    running: Running, client: Client
) -> None:
    failed = metric(running, FAILED)
    events = client.verify_events(sleeper("cancelled"), timeout=PATIENCE_S)
    until_running(events)
    assert metric(running, RUNNING) == 1
    assert metric(running, "haversack_in_flight") >= 1
    assert client.cancel_verify("cancelled") is JobState.CANCELLED
    *_, last = events
    assert last.report is not None
    assert last.report.failure is not None
    assert last.report.failure.reason is FailureReason.CANCELLED
    assert metric(running, RUNNING) == 0
    assert metric(running, FAILED) == failed
    assert metric(running, 'haversack_verify_wait_seconds_count{device="cpu"}') >= 1
    job = client.get_verify_job("cancelled")
    assert job.report == last.report
    assert (job.state, job.failure_reason) == (JobState.CANCELLED, FailureReason.CANCELLED)
    assert job.ended_unix_ns is not None
    assert job.ended_unix_ns >= job.submitted_unix_ns


def test_a_job_whose_stream_is_let_go_of_is_stopped(running: Running, client: Client) -> None:
    events = client.verify_events(sleeper("let-go"), timeout=PATIENCE_S)
    until_running(events)
    events.close()
    assert eventually(lambda: metric(running, RUNNING) == 0)
    assert client.cancel_verify("let-go") is JobState.CANCELLED


def test_a_job_that_is_kept_goes_on_and_can_be_followed_again(client: Client) -> None:
    request = sleeper("kept", keep=True)
    events = client.verify_events(request, timeout=PATIENCE_S)
    first = until_running(events)
    events.close()
    again = client.verify_events(request, timeout=PATIENCE_S)
    assert until_running(again) == first
    client.cancel_verify("kept")
    *_, last = again
    assert last.report is not None
    assert last.report.verdict is VerifyVerdict.FAILED


async def test_jobs_are_listed_to_either_client(running: Running, client: Client) -> None:
    events = client.verify_events(sleeper("listed"), timeout=PATIENCE_S)
    until_running(events)
    async with AsyncClient(running.target) as other:
        (listed,) = (await other.list_verify_jobs(states=["running"])).jobs
        assert listed == await other.get_verify_job("listed")
    assert client.list_verify_jobs(states=(JobState.RUNNING,)).jobs == (listed,)
    assert (listed.workload, listed.device, listed.report) == ("sleepy:build", "cpu", None)
    first = client.list_verify_jobs(page_size=1)
    assert [each.job_id for each in first.jobs] == ["listed"]
    assert client.list_verify_jobs(page_token=first.next_page_token).jobs
    client.cancel_verify("listed")
    events.close()


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda client: client.list_verify_jobs(page_size=0), "page_size"),
        (lambda client: client.list_verify_jobs(states=["gone"]), "states[0]"),
        (lambda client: client.list_verify_jobs(page_token="x"), "page_token"),
        (lambda client: client.get_verify_job(""), "job_id"),
    ],
)
def test_what_names_no_page_and_no_job_is_refused(
    client: Client, ask: Callable[[Client], object], field: str
) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        ask(client)
    assert refusal.value.field == field
    with pytest.raises(NotFoundError, match="nobody"):
        client.get_verify_job("nobody")


def test_a_folder_of_state_is_one_servers(tmp_path: Path) -> None:
    settings = Settings(state_dir=str(tmp_path / "state"), keep_reports=1)
    with served(settings) as running, Client(running.target) as client:
        assert client.list_verify_jobs().jobs == ()
    with (
        pytest.raises(HaversackError, match="another server keeps its own there"),
        served(settings),
        served(settings),
    ):
        pytest.fail("two servers have one folder")


def test_another_request_under_the_same_id_is_refused(client: Client) -> None:
    events = client.verify_events(sleeper("taken"), timeout=PATIENCE_S)
    until_running(events)
    with pytest.raises(InvalidRequestError) as caught:
        client.verify(workload="mlp", job_id="taken")
    assert caught.value.field == "job_id"
    events.close()


@pytest.mark.slow  # a worker of its own has to start
def test_stopping_the_server_ends_its_streams(tmp_path: Path) -> None:
    (tmp_path / "sleepy.py").write_text(SLEEPS)
    settings = Settings(allow=("sleepy",), worker_path=(str(tmp_path),), grace_s=0.0)
    with served(settings) as running:
        client = Client(running.target)
        events = client.verify_events(sleeper("last"), timeout=PATIENCE_S)
        until_running(events)
    with pytest.raises((UnavailableError, CallCancelledError)):
        list(events)
    client.close()
