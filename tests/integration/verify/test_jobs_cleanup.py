"""Ends that are met by something else: a cancellation in a clean-up, a worker that fails, a kill.

Each has a report that says what happened, and leaves neither a folder nor a job that nobody knows.
"""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable

import pytest

from haversack.errors import NotFoundError
from haversack.parallelism import Sharding
from haversack.run import WorkloadReference
from haversack.verify import (
    FailureReason,
    JobState,
    VerifyFailure,
    VerifyLimits,
    VerifyReport,
    VerifyRequest,
    VerifyVerdict,
    VerifyWorld,
)
from haversack_server import zygote
from haversack_server.execution import JobLimits
from haversack_server.job import Job
from haversack_server.jobs import JobRunner
from haversack_server.local_place import LocalPlace, LocalProcess
from haversack_server.places import Start
from haversack_server.processes import NotStartedError
from haversack_server.store import Store

pytest.importorskip("torch", reason="jobs need the extra torch")
PACKAGES = pathlib.Path(__file__).parent / "packages"
MLP = WorkloadReference(name="mlp")
SLEEPS = WorkloadReference(entry_point="jobworkloads.hostile:sleeps")
PATIENCE_S = 60


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Give the folder in which a server makes its own."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[pathlib.Path]":
    """Tell the scratch folder of a job's process when that begins to be closed."""
    folders: asyncio.Queue[pathlib.Path] = asyncio.Queue()
    close = LocalProcess.close

    async def told(process: LocalProcess) -> str:
        folders.put_nowait(process.folder)
        return await close(process)

    monkeypatch.setattr(LocalProcess, "close", told)
    return folders


def at_start_of_zygotes(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> pathlib.Path:
    """Have zygotes run code first; gives a file that it may make, to do something once."""
    once = folder / "once"
    indented = "".join(f"    {line}\n" for line in code.strip().splitlines())
    lines = f"import os, sys\nonce = {str(once)!r}\nif '--control-fd' in sys.orig_argv:\n{indented}"
    (folder / "sitecustomize.py").write_text(lines)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return once


async def report_of(job: Job) -> VerifyReport:
    async with asyncio.timeout(PATIENCE_S):
        *_, last = [event async for event in job.events()]
    assert last.report is not None
    return last.report


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def failure_of(report: VerifyReport | None) -> VerifyFailure:
    assert report is not None
    assert report.failure is not None
    return report.failure


@pytest.mark.parametrize(
    ("workload", "deadline_s", "reason"),
    [(MLP, 60, None), (SLEEPS, 1, FailureReason.DEADLINE)],
    ids=["its report has come", "its deadline has passed"],
)
async def test_a_job_that_ended_is_not_cancelled_in_its_clean_up(
    closing: "asyncio.Queue[pathlib.Path]",
    workload: WorkloadReference,
    deadline_s: int,
    reason: FailureReason | None,
) -> None:
    limits = VerifyLimits(deadline_ns=deadline_s * 10**9)
    request = VerifyRequest(
        job_id="ended", workload=workload, limits=limits, keep_after_disconnect=True
    )
    async with JobRunner(("jobworkloads.",), (str(PACKAGES),)) as runner:
        job = runner.submit(request)
        scratch = await asyncio.wait_for(closing.get(), PATIENCE_S)
        assert scratch.exists()
        assert await runner.cancel("ended") is JobState.FINISHED
        assert not scratch.exists()
    assert job.report is not None
    assert (job.report.failure and job.report.failure.reason) == reason


async def test_a_job_that_is_cancelled_while_its_start_fails_leaves_no_folder(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks = []

    async def fork(*_: object) -> None:
        forks.append(1)
        asyncio.get_running_loop().call_soon(starting.cancel)  # which finds the clean-up
        raise NotStartedError("there is no zygote")

    monkeypatch.setattr(LocalPlace, "_fork", fork)
    start = Start(job_id="a", device="cpu", deadline_ns=10**9)
    starting = asyncio.create_task(LocalPlace().start(start))
    await asyncio.wait((starting,))
    assert starting.cancelled()
    assert forks == [1]  # nor does it try again
    (place,) = os.listdir(home)
    assert os.listdir(home / place) == []


async def test_a_worker_that_is_slow_to_start_fails_the_job_and_says_so(
    home: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zygote, "_START_S", 0.05)
    async with JobRunner() as runner:
        failure = failure_of(await report_of(runner.submit(VerifyRequest(workload=MLP))))
    assert failure.reason is FailureReason.WORKER_NOT_STARTED
    assert failure.message == "the worker was not ready within 0.05 s"
    assert os.listdir(home) == []


def test_a_report_that_was_told_is_known_after_a_kill(tmp_path: pathlib.Path) -> None:
    code = f"""
import asyncio, os, pathlib, signal, time
from haversack.run import WorkloadReference
from haversack.verify import JobState, VerifyReport, VerifyRequest
from haversack_server.execution import Executor
from haversack_server.jobs import JobRunner
from haversack_server.store import Store

class SlowStore(Store):
    def _write(self, statement, rows):
        time.sleep(0.2)  # as a disk that others write to
        super()._write(statement, rows)

async def run(executor, job, begun):
    begun()
    return VerifyReport(job_id=job.job_id, workload="mlp")

async def main():
    store = SlowStore(pathlib.Path({str(tmp_path)!r}), on_fault=print)
    async with JobRunner(store=store) as runner:
        request = VerifyRequest(job_id="told", workload=WorkloadReference(name="mlp"))
        async for event in runner.submit(request).events():
            if event.report:
                os.kill(os.getpid(), signal.SIGKILL)

Executor.run = run
asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert asyncio.run(_state_after(tmp_path, "told")) is JobState.FINISHED


async def _state_after(folder: pathlib.Path, job_id: str) -> JobState:
    async with JobRunner(store=Store(folder, on_fault=pytest.fail)) as runner:
        return runner.job(job_id).state


async def test_a_report_that_cannot_be_written_is_told_all_the_same(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults: list[bool] = []
    store = Store(tmp_path / "state", on_fault=lambda: faults.append(True))
    async with JobRunner(store=store) as runner:
        monkeypatch.setattr("sys.executable", "/bin/false")  # a report needs no job
        (tmp_path / "state" / "jobs.sqlite").unlink()
        report = await report_of(runner.submit(VerifyRequest(workload=MLP)))
        assert failure_of(report).reason is FailureReason.WORKER_NOT_STARTED
    assert faults


@pytest.mark.slow
async def test_a_fork_that_fails_once_is_tried_again_by_the_same_worker(
    home: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = at_start_of_zygotes(
        tmp_path, monkeypatch, _FORK.format(error="BlockingIOError(11, 'no')")
    )
    async with JobRunner() as runner:
        await runner.warm()
        (folder,) = os.listdir(home)
        report = await report_of(runner.submit(VerifyRequest(workload=MLP)))
        assert once.exists()
        assert os.listdir(home) == [folder]
    assert report.verdict is VerifyVerdict.EQUIVALENT


@pytest.mark.slow
async def test_a_job_whose_worker_falls_has_a_folder_in_the_next_one(
    home: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = at_start_of_zygotes(tmp_path, monkeypatch, _FORK.format(error="RuntimeError('falls')"))
    async with JobRunner() as runner:
        await runner.warm()
        (folder,) = os.listdir(home)
        report = await report_of(runner.submit(VerifyRequest(workload=MLP)))
        assert once.exists()
        assert folder not in os.listdir(home)
    assert report.verdict is VerifyVerdict.EQUIVALENT


_FORK = """
fork = os.fork
def failing():
    if os.path.exists(once):
        return fork()
    open(once, "w").close()
    raise {error}
os.fork = failing
"""


@pytest.mark.slow
async def test_an_id_that_is_asked_again_gets_its_own_end_and_not_the_first_ones(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = at_start_of_zygotes(tmp_path, monkeypatch, _SLOW_RANKS)
    world = VerifyWorld(size=2, sharding=Sharding.FSDP2)
    request = VerifyRequest(job_id="a", workload=MLP, world=world, keep_after_disconnect=True)
    async with JobRunner(limits=JobLimits(kept_reports=0)) as runner:
        await runner.warm()
        first = runner.submit(request)
        await until(loading.exists)
        assert await runner.cancel("a") is JobState.CANCELLED
        with pytest.raises(NotFoundError):
            runner.job("a")
        second = runner.submit(request)
        assert second is not first
        report = await report_of(second)
    assert report.verdict is VerifyVerdict.EQUIVALENT


_SLOW_RANKS = """
import importlib.abc, time
class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "haversack_server.worker.sharded_job":
            open(once, "w").close()
            time.sleep(1)
sys.meta_path.insert(0, Slow())
"""
