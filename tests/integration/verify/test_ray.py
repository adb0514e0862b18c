"""Jobs on a Ray cluster of two machines, which are processes of this one, on its loopback.

What is killed from outside: a job's process, a worker, a machine. Each is a typed failure, the next
job runs, and nothing is left.
"""

import asyncio
import importlib
import os
import pathlib
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio

from haversack.errors import InvalidRequestError
from haversack.run import WorkloadReference
from haversack.verify import (
    FailureReason,
    JobState,
    VerifyLimits,
    VerifyReport,
    VerifyRequest,
    VerifyVerdict,
    VerifyWorld,
)
from haversack_server.execution import JobLimits
from haversack_server.job import Job
from haversack_server.jobs import JobRunner
from haversack_server.ray_place import RayPlace

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # ray's own files and processes
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="needs /proc"),
]
pytest.importorskip("torch", reason="jobs need the extra torch")
pytest.importorskip("ray", reason="needs the extra ray")
PACKAGES = pathlib.Path(__file__).parent / "packages"
LIMITS = JobLimits(deadline_ns=120 * 10**9)
STORE_BYTES = 80 * 2**20  # the least that a machine may have
PATIENCE_S = 60


@pytest.fixture(scope="module")
def cluster(loopback: None) -> Iterator[Any]:
    """Start a head and one more machine, with one processor each."""
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    machine = {
        "num_cpus": 1,
        "num_gpus": 0,
        "include_dashboard": False,
        "object_store_memory": STORE_BYTES,
        "node_ip_address": "127.0.0.1",
    }
    made: Any = importlib.import_module("ray.cluster_utils")
    cluster = made.Cluster(initialize_head=True, head_node_args=machine)
    try:
        cluster.second = cluster.add_node(**machine)
        yield cluster
    finally:
        cluster.shutdown()
        for each, handler in handlers.items():
            signal.signal(each, handler)


@pytest.fixture(scope="module")
def loopback() -> Iterator[None]:
    """Keep every part of the cluster, and this process, on the loopback."""
    with pytest.MonkeyPatch.context() as patch:
        # Ray's word for "one machine": addresses are not exchanged for those of the network.
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)  # it is loaded
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # A checkout may not be installed; a cluster's machines have haversack.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runner(cluster: Any) -> AsyncIterator[JobRunner]:
    place = RayPlace(cluster.address, jobs=LIMITS.waiting_jobs)
    async with JobRunner(
        ("jobworkloads.",), (str(PACKAGES),), limits=LIMITS, place=place
    ) as runner:
        yield runner


def request(name: str, job_id: str = "", **fields: Any) -> VerifyRequest:
    named = WorkloadReference(name=name)
    if ":" in name:
        named = WorkloadReference(entry_point=f"jobworkloads.{name}")
    return VerifyRequest(workload=named, job_id=job_id, keep_after_disconnect=True, **fields)


async def running(runner: JobRunner, asked: VerifyRequest) -> Job:
    job = runner.submit(asked)
    async with aclosing(job.events()) as events:
        async for event in events:
            if event.running:
                return job
    raise AssertionError(f"the job is over already: {job.report}")


async def report_of(job: Job) -> VerifyReport:
    async with asyncio.timeout(PATIENCE_S):
        *_, last = [event async for event in job.events()]
    assert last.report is not None
    return last.report


def named(words: str) -> list[int]:
    """Find processes by a word of their command line."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if words in (folder / "cmdline").read_bytes().decode():
                found.append(int(folder.name))
        except OSError:  # it has just ended
            continue
    return found


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, task.read_text().split())
    return found


def family() -> tuple[int, int, int]:
    """Give the one worker of the cluster, its zygote, and the job's process."""
    (worker,) = named("ray::RemoteJob")
    (zygote,) = children(worker)
    (job,) = children(zygote)
    return worker, zygote, job


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def lives(pid: int) -> bool:
    return pathlib.Path(f"/proc/{pid}").exists()


async def test_a_killed_job_is_lost_with_its_exit_status(runner: JobRunner) -> None:
    job = await running(runner, request("hostile:sleeps", "killed"))
    pids = family()
    os.kill(pids[-1], signal.SIGKILL)
    failure = (await report_of(job)).failure
    assert failure is not None
    assert (failure.reason, failure.exit_status) == (FailureReason.WORKER_LOST, -signal.SIGKILL)
    await until(lambda: not any(map(lives, pids)))


async def test_a_killed_worker_takes_its_job_along(runner: JobRunner) -> None:
    job = await running(runner, request("hostile:sleeps", "orphaned"))
    pids = family()
    os.kill(pids[0], signal.SIGKILL)
    failure = (await report_of(job)).failure
    assert failure is not None
    assert (failure.reason, failure.exit_status) == (FailureReason.WORKER_LOST, None)
    assert "lost with the worker" in failure.message
    await until(lambda: not any(map(lives, pids)))


async def test_what_no_machine_has_is_said_at_once(runner: JobRunner) -> None:
    wanted: list[dict[str, Any]] = [
        {"threads": 2}, {"world": VerifyWorld(size=4)}, {"device": "cuda:0"},
    ]  # fmt: skip
    for asked in wanted:
        failure = (await report_of(runner.submit(request("mlp", **asked)))).failure
        assert failure is not None
        assert failure.reason is FailureReason.WORKER_NOT_STARTED
        assert "no machine of the cluster has" in failure.message
    with pytest.raises(InvalidRequestError, match="any GPU that is free"):
        runner.submit(request("mlp", device="cuda:1"))


async def test_a_lost_machine_loses_its_job_and_the_others_go_on(
    runner: JobRunner, cluster: Any
) -> None:
    sleeping = await asyncio.gather(
        *(running(runner, request("hostile:sleeps", f"sleeps-{number}")) for number in range(2))
    )
    waiting = runner.submit(request("mlp", "waits", limits=VerifyLimits(deadline_ns=10**11)))
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
