"""Jobs as their callers see them: events, ids, cancelling, disconnecting, limits on how many."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from haversack.errors import InvalidRequestError, NotFoundError, OverloadedError
from haversack.run import WorkloadReference
from haversack.verify import (
    FailureReason,
    JobState,
    VerifyEvent,
    VerifyLimits,
    VerifyReport,
    VerifyRequest,
    VerifyVerdict,
)
from haversack_server.execution import JobLimits
from haversack_server.job import Job
from haversack_server.jobs import JobRunner, Listeners

pytestmark = pytest.mark.asyncio(loop_scope="session")
MLP = WorkloadReference(name="mlp")
SLEEPS = WorkloadReference(entry_point="jobworkloads.hostile:sleeps")
STAGES = [
    "build",
    "plain",
    "plain again",
    "checkpointed",
    "checkpointed under probes",
]


async def events_of(runner: JobRunner, **fields: Any) -> list[VerifyEvent]:
    job = runner.submit(VerifyRequest(**{"workload": MLP, **fields}))
    return [event async for event in job.events()]


async def until_running(job: Any) -> None:
    async with aclosing(job.events()) as events:
        async for event in events:
            if event.running:
                return


async def test_events_come_in_order_and_the_report_is_the_last(runner: JobRunner) -> None:
    events = await events_of(runner)
    assert events[0].queued is not None
    assert events[1].running is not None
    progress = [event.progress for event in events[2:-1] if event.progress]
    assert [each.stage for each in progress] == STAGES
    assert [each.completed for each in progress] == [1, 2, 3, 4, 5]
    assert {each.total for each in progress} == {5}
    assert events[-1].report is not None
    assert events[-1].report.job_id == events[0].job_id
    assert [e.elapsed_ns for e in events] == sorted(e.elapsed_ns for e in events)


async def test_a_callback_and_a_difference_make_stages_more(runner: JobRunner) -> None:
    named = WorkloadReference(name="sine-dropout-square-changed-setting")
    events = await events_of(runner, workload=named)
    *_, control, traced, report = events
    assert control.progress is not None
    assert (control.progress.stage, control.progress.completed) == ("control", 6)
    assert traced.progress is not None
    assert (traced.progress.stage, traced.progress.completed) == ("traced", 7)
    assert traced.progress.total == 7
    # None but the last is told as if it were.
    told = [each.progress for each in events if each.progress]
    assert [each.completed == each.total for each in told] == [False] * 6 + [True]
    assert report.report is not None


async def test_a_second_plain_run_that_differs_is_run_once_more_without_a_probe(
    runner: JobRunner,
) -> None:
    events = await events_of(runner, workload=WorkloadReference(name="entropy-mask"))
    progress = [event.progress for event in events if event.progress]
    assert [each.stage for each in progress][1:5] == [
        "plain",
        "plain again",
        "plain once more",
        "checkpointed",
    ]
    assert (progress[-1].completed, progress[-1].total) == (6, 6)


async def test_the_server_makes_an_id_where_the_caller_gives_none(runner: JobRunner) -> None:
    first, second = await events_of(runner), await events_of(runner)
    assert first[0].job_id != second[0].job_id
    assert first[0].job_id in {runner.job(first[0].job_id).job_id}


async def test_the_same_request_under_one_id_is_one_job_with_its_stored_report(
    runner: JobRunner,
) -> None:
    first, second = await asyncio.gather(
        events_of(runner, job_id="once"), events_of(runner, job_id="once")
    )
    assert first == second
    assert await events_of(runner, job_id="once") == first


async def test_another_request_under_a_known_id_is_refused(runner: JobRunner) -> None:
    await events_of(runner, job_id="taken")
    with pytest.raises(InvalidRequestError, match="taken") as refusal:
        runner.submit(VerifyRequest(workload=MLP, job_id="taken", seed=1))
    assert refusal.value.field == "job_id"


async def test_jobs_of_one_device_wait_for_each_other(runner: JobRunner) -> None:
    heard: list[tuple[str, VerifyEvent]] = []  # of both, in the order in which they came

    async def hear(name: str, job: Job) -> None:
        async for event in job.events():
            heard.append((name, event))

    first = runner.submit(VerifyRequest(workload=MLP))
    second = runner.submit(VerifyRequest(workload=MLP))
    await asyncio.gather(hear("first", first), hear("second", second))
    (queued,) = [event.queued for name, event in heard if name == "second" and event.queued]
    assert queued.position == 1
    (over,) = [
        place for place, (name, event) in enumerate(heard) if name == "first" and event.report
    ]
    (runs,) = [
        place for place, (name, event) in enumerate(heard) if name == "second" and event.running
    ]
    assert over < runs


async def test_a_running_job_is_cancelled_and_says_so(runner: JobRunner) -> None:
    job = runner.submit(
        VerifyRequest(workload=SLEEPS, job_id="stopped", keep_after_disconnect=True)
    )
    await until_running(job)
    assert runner.counts()[JobState.RUNNING] == 1
    assert await runner.cancel("stopped") is JobState.CANCELLED
    events = [event async for event in job.events()]
    assert events[-1].report is not None
    assert events[-1].report.verdict is VerifyVerdict.FAILED
    assert events[-1].report.failure is not None
    assert events[-1].report.failure.reason is FailureReason.CANCELLED
    assert await runner.cancel("stopped") is JobState.CANCELLED


async def test_a_job_is_cancelled_before_its_first_step_and_in_the_queue(
    runner: JobRunner,
) -> None:
    early = runner.submit(VerifyRequest(workload=MLP, job_id="early"))
    assert await runner.cancel("early") is JobState.CANCELLED
    assert early.report is not None
    first = runner.submit(VerifyRequest(workload=SLEEPS, job_id="first"))
    waiting = runner.submit(VerifyRequest(workload=MLP, job_id="waiting"))
    await asyncio.sleep(0)
    assert await runner.cancel("waiting") is JobState.CANCELLED
    assert [event.running for event in [e async for e in waiting.events()]] == [None, None]
    assert not first.is_over
    await runner.cancel("first")


async def test_a_job_that_is_over_cannot_be_cancelled_any_more(runner: JobRunner) -> None:
    await events_of(runner, job_id="over")
    assert await runner.cancel("over") is JobState.FINISHED


async def test_an_unknown_job_cannot_be_cancelled(runner: JobRunner) -> None:
    with pytest.raises(NotFoundError, match="nobody"):
        await runner.cancel("nobody")


async def test_a_job_ends_when_nobody_reads_it_any_more(runner: JobRunner) -> None:
    job = runner.submit(VerifyRequest(workload=SLEEPS, job_id="left"))
    await until_running(job)
    async with asyncio.timeout(60):  # of the 120 s that it would take
        while not job.is_over:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert job.state is JobState.CANCELLED


async def test_a_job_goes_on_while_somebody_else_reads_it(runner: JobRunner) -> None:
    job = runner.submit(VerifyRequest(workload=MLP))
    other = asyncio.create_task(_all(job))
    await asyncio.sleep(0)
    await until_running(job)
    assert (await other)[-1].report.verdict is VerifyVerdict.EQUIVALENT


async def test_a_job_survives_its_callers_disconnect_if_asked_to(runner: JobRunner) -> None:
    request = VerifyRequest(workload=MLP, job_id="kept", keep_after_disconnect=True)
    await until_running(runner.submit(request))
    events = await _all(runner.submit(request))
    assert events[-1].report.verdict is VerifyVerdict.EQUIVALENT


async def _all(job: Any) -> list[Any]:
    return [event async for event in job.events()]


async def test_only_so_many_jobs_wait() -> None:
    async with JobRunner(limits=JobLimits(waiting_jobs=1)) as runner:
        runner.submit(VerifyRequest(workload=MLP))
        with pytest.raises(OverloadedError) as refusal:
            runner.submit(VerifyRequest(workload=MLP))
        assert refusal.value.retry_after_ns > 0


async def test_only_so_many_reports_are_kept_and_each_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")  # a report needs no job
    told: list[VerifyReport] = []
    limits = JobLimits(kept_reports=2)
    async with JobRunner(limits=limits, listeners=Listeners(report=told.append)) as small:
        for number in range(3):
            await events_of(small, job_id=f"job-{number}")
        assert [report.job_id for report in told] == ["job-0", "job-1", "job-2"]
        assert small.job("job-2").report is told[-1]
        with pytest.raises(NotFoundError):
            small.job("job-0")


async def test_a_deadline_is_never_longer_than_the_servers(runner: JobRunner) -> None:
    events = await events_of(runner, limits=VerifyLimits(deadline_ns=10**18))
    assert events[1].running is not None
    assert events[1].running.deadline_ns == JobLimits().longest_deadline_ns


async def test_built_in_workloads_are_listed_by_name(runner: JobRunner) -> None:
    names = [each.name for each in runner.workloads()]
    assert "gpt2-tiny" in names
    assert names == sorted(names)


async def test_a_prefix_that_is_none_stops_the_server_at_once() -> None:
    with pytest.raises(InvalidRequestError, match="allow"):
        JobRunner(allow=("my pkg",))
