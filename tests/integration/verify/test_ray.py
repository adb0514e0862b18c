"""Jobs on a Ray cluster of two machines, which are processes of this one, on its loopback.

What is killed from outside: a job's process, a worker, a machine. Each is a typed failure, the next
job runs, and nothing is left: no process, and no placement group.
"""

import asyncio
import os
import pathlib
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from tests.integration.verify.ray_jobs import (
    UUIDS,
    children,
    groups,
    groups_of,
    lives,
    named,
    report_of,
    request,
    runner_on,
    running,
    two_machines,
    until,
    variable,
    workers,
)

from haversack.errors import InvalidRequestError
from haversack.verify import FailureReason, JobState, VerifyLimits, VerifyVerdict, VerifyWorld
from haversack_server.jobs import JobRunner

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # ray's own files and processes
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="needs /proc"),
    pytest.mark.skipif(not shutil.which("cc"), reason="its GPUs need a C compiler, cc"),
]
pytest.importorskip("torch", reason="jobs need the extra torch")
pytest.importorskip("ray", reason="needs the extra ray")
RANKS = VerifyWorld(size=2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with two_machines(tmp_path_factory.mktemp("nvml")) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runner(cluster: Any) -> AsyncIterator[JobRunner]:
    async with runner_on(cluster) as runner:
        yield runner


def family() -> tuple[int, int, int]:
    """Give the one worker of the cluster, its zygote, and the job's process."""
    (worker,) = workers()
    (zygote,) = children(worker)
    (job,) = children(zygote)
    return worker, zygote, job


async def test_the_servers_end_leaves_neither_worker_nor_group(cluster: Any) -> None:
    async with runner_on(cluster) as ending:
        job = await running(ending, request("hostile:sleeps", "ends", world=RANKS))
        assert groups() == {"haversack-ends": "CREATED"}
    assert job.state is JobState.LOST
    assert await asyncio.to_thread(groups_of, cluster) == {}
    await until(lambda: not workers())


async def test_a_killed_job_is_lost_with_its_exit_status(runner: JobRunner) -> None:
    job = await running(runner, request("hostile:sleeps", "killed"))
    pids = family()
    os.kill(pids[-1], signal.SIGKILL)
    failure = (await report_of(job)).failure
    assert failure is not None
    assert (failure.reason, failure.exit_status) == (FailureReason.WORKER_LOST, -signal.SIGKILL)
    await until(lambda: not any(map(lives, pids)))


async def test_a_killed_worker_takes_its_ranks_and_their_group_along(runner: JobRunner) -> None:
    job = await running(runner, request("hostile:sleeps", "orphaned", world=RANKS))
    pids = family()
    assert groups() == {"haversack-orphaned": "CREATED"}
    os.kill(pids[0], signal.SIGKILL)
    failure = (await report_of(job)).failure
    assert failure is not None
    assert (failure.reason, failure.exit_status) == (FailureReason.WORKER_LOST, None)
    assert "lost with the worker" in failure.message
    await until(lambda: not any(map(lives, pids)) and not groups())
    assert workers() == []  # nothing runs again what ran


async def test_a_worker_that_is_killed_before_its_process_runs_is_replaced(
    runner: JobRunner,
) -> None:
    job = runner.submit(request("hostile:sleeps", "replaced", world=RANKS))
    await until(lambda: bool(workers()))
    (first,) = workers()
    await until(lambda: bool(children(first)))  # its zygote, which loads torch for seconds
    assert job.state is JobState.QUEUED
    os.kill(first, signal.SIGKILL)
    await until(lambda: job.state is JobState.RUNNING)
    assert workers() != [first]
    assert groups() == {"haversack-replaced": "CREATED"}
    assert await runner.cancel("replaced") is JobState.CANCELLED
    await until(lambda: not (workers() or groups()))


async def test_gpus_are_one_for_a_job_and_the_next_waits_for_one(runner: JobRunner) -> None:
    asked = [request("hostile:sleeps", f"on-gpu-{n}", device="cuda:0") for n in range(2)]
    jobs = await asyncio.gather(*(running(runner, each) for each in asked))
    pids = [pid for worker in workers() for pid in children(worker)]
    assert {variable(pid, "CUDA_VISIBLE_DEVICES") for pid in pids} == UUIDS
    waiting = runner.submit(request("hostile:sleeps", "waits", device="cuda:0", world=RANKS))
    await until(lambda: groups() == {"haversack-waits": "PENDING"})
    assert waiting.state is JobState.QUEUED
    assert await runner.cancel("waits") is JobState.CANCELLED
    assert groups() == {}
    # A worker that does not answer is killed by force, and its job's process ends with it.
    stuck = workers()[0]
    os.kill(stuck, signal.SIGSTOP)
    states = await asyncio.gather(*(runner.cancel(job.job_id) for job in jobs))
    assert states == [JobState.CANCELLED] * 2
    await until(lambda: not (workers() or any(map(lives, pids))))


async def test_ranks_on_gpus_have_one_each_and_fail_for_want_of_a_driver(
    runner: JobRunner,
) -> None:
    report = await report_of(runner.submit(request("mlp", "ranks", device="cuda:0", world=RANKS)))
    assert report.verdict is VerifyVerdict.FAILED
    assert report.failure is not None
    assert report.failure.reason is FailureReason.DEVICE_FAULT
    assert report.environment is not None
    assert report.environment.executor == "ray"
    assert {gpu.uuid for gpu in report.environment.gpus} == UUIDS
    assert [gpu.device for gpu in report.environment.gpus] == ["cuda:0", "cuda:1"]
    await until(lambda: not (workers() or groups()))


async def test_what_no_machine_has_is_said_at_once(runner: JobRunner) -> None:
    wanted: list[dict[str, Any]] = [
        {"threads": 3}, {"world": VerifyWorld(size=4)},
        {"device": "cuda:0", "world": VerifyWorld(size=4)},
    ]  # fmt: skip
    for asked in wanted:
        failure = (await report_of(runner.submit(request("mlp", **asked)))).failure
        assert failure is not None
        assert failure.reason is FailureReason.WORKER_NOT_STARTED
        assert "no machine of the cluster has" in failure.message
    with pytest.raises(InvalidRequestError, match="any GPU that is free"):
        runner.submit(request("mlp", device="cuda:1"))
    assert groups() == {}


async def test_a_lost_machine_loses_its_job_and_the_others_go_on(
    runner: JobRunner, cluster: Any
) -> None:
    sizes = enumerate((1, 2))  # the two fill the cluster
    sleeping = await asyncio.gather(
        *(running(runner, request("hostile:sleeps", f"sleeps-{n}", threads=t)) for n, t in sizes)
    )
    waiting = runner.submit(request("mlp", "waits-on", limits=VerifyLimits(deadline_ns=10**11)))
    await asyncio.to_thread(cluster.remove_node, cluster.second, allow_graceful=False)
    ended, _ = await asyncio.wait(
        [asyncio.create_task(report_of(job)) for job in sleeping],
        return_when=asyncio.FIRST_COMPLETED,
    )
    (lost,) = [(await task).failure for task in ended]
    assert lost is not None
    assert lost.reason is FailureReason.WORKER_LOST
    assert waiting.state is JobState.QUEUED
    (other,) = [job for job in sleeping if not job.is_over]
    assert await runner.cancel(other.job_id) is JobState.CANCELLED
    report = await report_of(waiting)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    assert report.environment is not None
    assert any("scratch folder" in said for said in report.environment.isolation)
    await until(lambda: not named("ray::RemoteJob"))
