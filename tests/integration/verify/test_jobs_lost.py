"""What is killed from outside: a job, the zygote, the server. The next job runs, nothing is left.

Processes are found as children of children, in /proc.
"""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from haversack.run import WorkloadReference
from haversack.verify import FailureReason, VerifyReport, VerifyRequest, VerifyVerdict
from haversack_server.jobs import JobRunner
from haversack_server.leftovers import VALUES
from haversack_server.processes import start_afresh
from haversack_server.verify.records import to_json

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="needs /proc"),
]
pytest.importorskip("torch", reason="jobs need the extra torch")
PACKAGES = pathlib.Path(__file__).parent / "packages"
MLP = VerifyRequest(workload=WorkloadReference(name="mlp"))
PATIENCE_S = 60


def children(pid: int) -> list[int]:
    """The children of every thread of a process."""
    found: list[int] = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:  # the thread has just ended
            continue
    return found


def descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from descendants(child)


def hostile(name: str, **fields: Any) -> VerifyRequest:
    entry_point = f"jobworkloads.hostile:{name}"
    return VerifyRequest(workload=WorkloadReference(entry_point=entry_point), **fields)


async def report_of(runner: JobRunner, request: VerifyRequest) -> VerifyReport:
    events = [event async for event in runner.submit(request).events()]
    report = events[-1].report
    assert report is not None
    return report


async def running(runner: JobRunner, request: VerifyRequest) -> asyncio.Task[VerifyReport]:
    """Start a request, which has an id, and return once it runs."""
    assert request.job_id
    reading = asyncio.create_task(report_of(runner, request))
    await asyncio.sleep(0)
    async with aclosing(runner.submit(request).events()) as events:
        async for event in events:
            if event.running:
                return reading
    raise AssertionError("the job is over already")


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what no event tells of: the end of processes that are not ours."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def gone(*pids: int) -> None:
    """Wait until processes are gone, zombies not counted."""
    await until(lambda: not any(_lives(pid) for pid in pids))


def _lives(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def workers() -> list[int]:
    """Zygotes and fresh workers of this process."""
    command = b"haversack_server.worker"
    return [pid for pid in children(os.getpid()) if command in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.fixture
def others() -> set[int]:
    """Workers that other tests of this process run."""
    return set(workers())


async def test_a_job_that_is_killed_is_lost_and_the_next_one_runs(runner: JobRunner) -> None:
    await runner.warm()
    (zygote,) = workers()
    await until(lambda: not children(zygote))  # of the last job
    reading = await running(runner, hostile("sleeps", job_id="killed"))
    (job,) = children(zygote)
    os.kill(job, signal.SIGKILL)
    report = await asyncio.wait_for(reading, PATIENCE_S)
    assert report.verdict is VerifyVerdict.FAILED
    assert report.failure is not None
    assert report.failure.reason is FailureReason.WORKER_LOST
    assert report.failure.exit_status == -signal.SIGKILL
    assert "signal 9 (SIGKILL)" in report.failure.message
    assert (await report_of(runner, MLP)).verdict is VerifyVerdict.EQUIVALENT
    assert workers() == [zygote]


async def test_what_a_job_leaves_behind_is_killed_with_it(runner: JobRunner) -> None:
    await runner.warm()
    (zygote,) = workers()
    reports = []
    for request in (hostile("leaves_processes"), hostile("leaves_processes_and_exits")):
        reports.append(await report_of(runner, request))
        await until(lambda: not children(zygote))
        assert children(zygote) == []
    assert [each.verdict for each in reports] == [VerifyVerdict.EQUIVALENT, VerifyVerdict.FAILED]


async def test_a_zygote_that_is_killed_is_replaced_and_nothing_is_left_at_the_end(
    others: set[int], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other runs use the shared one
    async with JobRunner(("jobworkloads",), (str(PACKAGES),)) as runner:
        await runner.warm()
        (first,) = set(workers()) - others
        os.kill(first, signal.SIGKILL)  # between jobs
        reading = await running(runner, hostile("sleeps", job_id="orphan"))
        (second,) = set(workers()) - others - {first}
        await _killed_in_a_job(second, reading)
        assert (await report_of(runner, MLP)).verdict is VerifyVerdict.EQUIVALENT
        reading = await running(runner, hostile("sleeps", job_id="left"))
        (third,) = set(workers()) - others - {first, second}
        started = [third, *descendants(third)]
        assert len(started) >= 2
    report = await reading
    assert report.failure is not None
    assert report.failure.reason is FailureReason.SERVER_RESTARTED
    assert set(workers()) == others
    assert not any(_lives(pid) for pid in started)
    assert os.listdir(tmp_path) == []


async def _killed_in_a_job(zygote: int, reading: asyncio.Task[VerifyReport]) -> None:
    """Kill a zygote that runs a job: the job is lost, and its process goes too."""
    jobs = children(zygote)
    assert len(jobs) == 1
    os.kill(zygote, signal.SIGKILL)
    report = await asyncio.wait_for(reading, PATIENCE_S)
    assert report.failure is not None
    assert report.failure.reason is FailureReason.WORKER_LOST
    assert report.failure.exit_status is None
    await gone(zygote, *jobs)


async def test_a_runner_that_never_ran_a_job_starts_nothing(others: set[int]) -> None:
    async with JobRunner() as runner:
        assert runner.workloads()
        assert set(workers()) == others


async def test_a_server_that_is_killed_takes_its_workers_and_folders_with_it(
    tmp_path: pathlib.Path,
) -> None:
    code = f"""
import asyncio
from haversack.run import WorkloadReference
from haversack.verify import VerifyRequest
from haversack_server.jobs import JobRunner

async def main():
    async with JobRunner(("jobworkloads",), ({str(PACKAGES)!r},)) as runner:
        named = WorkloadReference(entry_point="jobworkloads.hostile:sleeps")
        async for event in runner.submit(VerifyRequest(workload=named)).events():
            if event.running:
                print("running", flush=True)

asyncio.run(main())
"""
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)}
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=subprocess.PIPE, env=environment
    )
    assert server.stdout is not None
    try:
        said = await asyncio.wait_for(server.stdout.readline(), PATIENCE_S)
        started = list(descendants(server.pid))
    finally:
        server.kill()
        await server.wait()
    assert said == b"running\n"
    assert len(started) >= 2
    await gone(*started)
    await until(lambda: os.listdir(tmp_path) == [])


async def test_a_worker_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    async with JobRunner() as runner:
        report = await report_of(runner, MLP)
    assert report.failure is not None
    assert report.failure.reason is FailureReason.WORKER_NOT_STARTED


async def test_a_job_may_start_afresh_as_on_a_gpu(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAVERSACK_TOKEN", "secret")
    limits = {"scratch": str(tmp_path), "deadline_ns": 10**11, "memory_bytes": None}
    process = await start_afresh(limits, gpu="")
    await process.send(
        {
            "job_id": "fresh",
            "request": to_json(hostile("tells_its_surroundings")),
            "allow": ["jobworkloads"],
            "path": [str(PACKAGES)],
            "values_file": str(tmp_path / VALUES),
        }
    )
    received = []
    while (message := await process.receive()) is not None:
        received.append(message)
    assert "No new privileges" in received[0]["environment"]["isolation"]
    failure = received[-1]["report"]["failure"]
    assert failure["reason"] == FailureReason.BAD_WORKLOAD
    # Nothing of ours that may be secret, no GPU, and a folder of its own.
    own = ".haversack.output', '.haversack.values"
    assert f"raised ValueError: [] '' ['{own}', 'here'" in failure["message"]
    assert await process.status() == 0
    await process.close()
