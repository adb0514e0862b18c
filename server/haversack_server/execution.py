"""Runs one job in a process: order out, events in, limits kept, last words saved.

The zygote starts with the first CPU job and is replaced when it dies. Imports no torch.
"""

import asyncio
import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from haversack.errors import HaversackError
from haversack.verify import (
    FailureReason,
    VerifyFailure,
    VerifyProgress,
    VerifyReport,
    VerifyRunning,
)
from haversack_server.job import Job
from haversack_server.processes import NotStartedError, Process, start_afresh, tail
from haversack_server.verify import reports
from haversack_server.verify.admissible import gpu_of
from haversack_server.verify.frames import FrameError
from haversack_server.verify.library import is_of_library
from haversack_server.verify.records import RecordError, from_json, to_json
from haversack_server.zygote import Zygote

_MOST_STAGES = 100  # a job has about ten; its process is not to be trusted
OUTPUT = "output.txt"  # in a job's scratch folder: what it printed


@dataclass(frozen=True, kw_only=True, slots=True)
class JobLimits:
    """What the operator allows: jobs at once and in all, and the limits of each.

    ``memory_bytes`` is half of the machine's memory if None.
    """

    cpu_jobs: int = 1
    waiting_jobs: int = 64
    kept_reports: int = 256
    deadline_ns: int = 300 * 10**9
    longest_deadline_ns: int = 3600 * 10**9
    memory_bytes: int | None = None


class Executor:
    """Owns the zygote and the scratch folders."""

    def __init__(self, allow: Sequence[str], path: Sequence[str], limits: JobLimits) -> None:
        self._allow = tuple(allow)
        self._path = tuple(os.path.abspath(folder) for folder in path)
        self._limits = limits
        self._folder: pathlib.Path | None = None
        self._zygote: Zygote | None = None
        self._starting = asyncio.Lock()

    async def warm(self) -> None:
        """Start the zygote, unless it lives."""
        await self._living_zygote()

    async def close(self) -> None:
        """End the zygote and remove the folders."""
        if self._zygote is not None:
            await self._zygote.stop()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def run(self, job: Job) -> VerifyReport:
        """Run a job to its end, whatever that is; cancellation kills its process."""
        scratch = pathlib.Path(tempfile.mkdtemp(dir=self._home()))
        report = reports.blank(job.request, job.job_id)
        try:
            process = await self._process(job, scratch)
        except NotStartedError as failed:
            reason = FailureReason.WORKER_NOT_STARTED
            return reports.failed(report, VerifyFailure(reason=reason, message=str(failed)))
        try:
            ended = await self._follow(job, process, scratch)
        finally:
            await process.close()
            last_words = tail(scratch / OUTPUT)
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        if isinstance(ended, VerifyFailure):
            ended = reports.failed(report, ended)
        return _completed(ended, job.device, last_words)

    async def _process(self, job: Job, scratch: pathlib.Path) -> Process:
        limits = self._limits_of(job, scratch)
        if job.device != "cpu":
            return await start_afresh(limits, gpu=gpu_of(job.device) or "")
        of_library = is_of_library(job.request.workload.name)
        with contextlib.suppress(NotStartedError):
            return await (await self._living_zygote()).fork(job.job_id, limits, of_library)
        # It may have died since the last job; a second death is not chance.
        return await (await self._living_zygote()).fork(job.job_id, limits, of_library)

    async def _living_zygote(self) -> Zygote:
        async with self._starting:
            if self._zygote is not None and not self._zygote.is_alive:
                await self._zygote.stop()
                self._zygote = None
            if self._zygote is None:
                self._zygote = await Zygote.start(self._home())
            return self._zygote

    def _home(self) -> pathlib.Path:
        if self._folder is None:
            self._folder = pathlib.Path(tempfile.mkdtemp(prefix="haversack-jobs-"))
        return self._folder

    def _limits_of(self, job: Job, scratch: pathlib.Path) -> Mapping[str, Any]:
        asked = job.request.limits.memory_bytes
        most = self._limits.memory_bytes or _half_of_memory()
        return {
            "scratch": str(scratch),
            "deadline_ns": self._deadline_ns(job),
            "memory_bytes": min(asked or most, most) if job.device == "cpu" else None,
            "threads": job.request.threads or 1,
        }

    def _deadline_ns(self, job: Job) -> int:
        asked = job.request.limits.deadline_ns or self._limits.deadline_ns
        return min(asked, self._limits.longest_deadline_ns)

    async def _follow(
        self, job: Job, process: Process, scratch: pathlib.Path
    ) -> VerifyReport | VerifyFailure:
        deadline_ns = self._deadline_ns(job)
        job.emit(running=VerifyRunning(device=job.device, deadline_ns=deadline_ns))
        try:
            async with asyncio.timeout(deadline_ns / 1e9):
                await process.send(self._order(job, scratch))
                return await self._listen(job, process)
        except TimeoutError:
            return VerifyFailure(
                reason=FailureReason.DEADLINE,
                message=f"The job did not end within {deadline_ns / 1e9:g} s and was killed",
            )
        except (FrameError, RecordError, HaversackError) as wrong:
            return VerifyFailure(
                reason=FailureReason.WORKER_LOST,
                message=f"The job's process sent something that is no report: {wrong}",
            )

    def _order(self, job: Job, scratch: pathlib.Path) -> Mapping[str, Any]:
        device = job.request.device
        # The process sees one GPU, whose number is then 0.
        request = replace(job.request, device="cuda:0" if device.startswith("cuda") else device)
        return {
            "job_id": job.job_id,
            "request": to_json(request),
            "allow": self._allow,
            "path": self._path,
            "values_file": str(scratch / "values.pt"),
        }

    async def _listen(self, job: Job, process: Process) -> VerifyReport | VerifyFailure:
        told = 0
        while (message := await process.receive()) is not None:
            if "report" in message:
                return from_json(VerifyReport, message["report"])
            told += 1
            if "progress" not in message or told > _MOST_STAGES:
                raise FrameError("a frame is neither progress nor report")
            job.emit(progress=from_json(VerifyProgress, message["progress"]))
        status = await process.status()
        how = "was lost with the worker" if status is None else reports.ended(status)
        return VerifyFailure(
            reason=FailureReason.WORKER_LOST,
            message=f"The job's process {how} before its report",
            exit_status=status,
        )


def _completed(report: VerifyReport, device: str, last_words: str) -> VerifyReport:
    """Add what the process does not know: what it printed, and the device's number here."""
    if report.failure is not None:
        return replace(report, failure=replace(report.failure, stderr_tail=last_words))
    if report.environment is not None:
        return replace(report, environment=replace(report.environment, device=device))
    return report


def _half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
