"""Jobs that are known after a restart of their server, and under which id one asks again.

No worker starts here: a job that fails for that has a report as any other.
"""

import asyncio
import pathlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

import pytest

from haversack.errors import InvalidRequestError
from haversack.run import WorkloadReference
from haversack.verify import (
    FailureReason,
    JobState,
    VerifyEvent,
    VerifyLimits,
    VerifyReport,
    VerifyRequest,
)
from haversack.verify_jobs import ListVerifyJobsRequest
from haversack_server.execution import Executor
from haversack_server.job import Job
from haversack_server.jobs import JobRunner, Listeners
from haversack_server.store import Store

pytest.importorskip("torch", reason="jobs need the extra torch")
Serve = Callable[[], AbstractAsyncContextManager[JobRunner]]
WAITED: list[tuple[str, int]] = []


@pytest.fixture
def serve(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Start a server of one state folder; jobs with a deadline of 1 never end by themselves."""

    async def run(_: Executor, job: Job, begun: Callable[[], object]) -> VerifyReport:
        begun()
        if job.request.limits.deadline_ns == 1:
            await asyncio.Event().wait()
        return VerifyReport(job_id=job.job_id, workload=job.request.workload.name)

    @asynccontextmanager
    async def served() -> AsyncIterator[JobRunner]:
        store = Store(tmp_path / "state", on_fault=pytest.fail)
        listeners = Listeners(waited=lambda device, ns: WAITED.append((device, ns)))
        async with JobRunner(store=store, listeners=listeners) as runner:
            yield runner

    monkeypatch.setattr(Executor, "run", run)
    return served


def request(job_id: str, *, ends: bool = True, keep: bool = False, seed: int = 0) -> VerifyRequest:
    return VerifyRequest(
        job_id=job_id,
        workload=WorkloadReference(name="mlp"),
        limits=VerifyLimits(deadline_ns=10**10 if ends else 1),
        keep_after_disconnect=keep,
        seed=seed,
    )


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what is written by another thread first."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def events_of(job: Job) -> list[VerifyEvent]:
    return [event async for event in job.events()]


async def test_the_same_id_gives_the_stored_report_after_a_restart(serve: Serve) -> None:
    async with serve() as runner:
        *_, last = await events_of(runner.submit(request("once")))
    async with serve() as runner:
        (event,) = await events_of(runner.submit(request("once")))
        assert event.report == last.report
        with pytest.raises(InvalidRequestError, match="another request"):
            runner.submit(request("once", seed=1))
        (listed,) = runner.page(ListVerifyJobsRequest()).jobs
        assert (listed.job_id, listed.state) == ("once", JobState.FINISHED)


async def test_a_job_that_the_server_left_is_lost(serve: Serve) -> None:
    async with serve() as runner:
        running = runner.submit(request("running", ends=False, keep=True))
        waiting = runner.submit(request("waiting"))
        await until(lambda: running.state is JobState.RUNNING)
        assert await runner.cancel("waiting") is JobState.CANCELLED
        waiting = runner.submit(request("waiting-too"))
        await asyncio.sleep(0.01)
    for job in (running, waiting):
        assert job.state is JobState.LOST
        assert job.report is not None
        assert job.report.failure is not None
        assert job.report.failure.reason is FailureReason.SERVER_RESTARTED
    async with serve() as runner:
        states = {each.job_id: each.state for each in runner.page(ListVerifyJobsRequest()).jobs}
    lost, cancelled = JobState.LOST, JobState.CANCELLED
    assert states == {"running": lost, "waiting": cancelled, "waiting-too": lost}


async def test_a_job_whose_stream_the_server_cuts_at_its_end_is_lost(serve: Serve) -> None:
    async with serve() as runner:
        for closing, state in ((False, JobState.CANCELLED), (True, JobState.LOST)):
            if closing:
                runner.expect_end()
            assert await _state_once_cut(runner, f"cut-{state.name}") is state


async def _state_once_cut(runner: JobRunner, job_id: str) -> JobState:
    job = runner.submit(request(job_id, ends=False))
    async with aclosing(job.events()) as events:
        await anext(events)
    await until(lambda: job.is_over)
    return job.state


async def test_who_attaches_and_keeps_a_job_keeps_it_for_all(serve: Serve) -> None:
    async with serve() as runner:
        job = runner.submit(request("kept", ends=False))
        assert runner.submit(request("kept", ends=False, keep=True)) is job
        async with aclosing(job.events()) as events:
            await anext(events)
        await asyncio.sleep(0.01)
        assert not job.is_over
        assert runner.submit(request("kept", ends=False)) is job
        assert await runner.cancel("kept") is JobState.CANCELLED


async def test_devices_have_queues_of_their_own(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haversack_server.jobs.check_admissible", lambda *_: None)
    WAITED.clear()
    async with serve() as runner:
        on = {
            (device, number): runner.submit(
                VerifyRequest(
                    workload=WorkloadReference(name="mlp"),
                    device=device,
                    limits=VerifyLimits(deadline_ns=1),
                )
            )
            for device in ("cpu", "cuda:0", "cuda:1")
            for number in range(2)
        }
        await until(lambda: sum(job.state is JobState.RUNNING for job in on.values()) == 3)
        states = {key: job.state for key, job in on.items()}
        assert {key for key in on if states[key] is JobState.RUNNING} == {
            ("cpu", 0), ("cuda:0", 0), ("cuda:1", 0),
        }  # fmt: skip
        await runner.cancel(on["cuda:1", 0].job_id)
        await until(lambda: on["cuda:1", 1].state is JobState.RUNNING)
        assert on["cuda:0", 1].state is JobState.QUEUED
    assert sorted(device for device, _ in WAITED) == ["cpu", "cuda:0", "cuda:1", "cuda:1"]
    assert all(waited_ns >= 0 for _, waited_ns in WAITED)
