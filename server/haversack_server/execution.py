"""Runs one job in a process: order out, events in, its deadline kept, last words saved.

Knows no machine: ``places`` starts the process. Imports no torch.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from haversack.errors import HaversackError
from haversack.verify import (
    FailureReason,
    VerifyEnvironment,
    VerifyFailure,
    VerifyProgress,
    VerifyReport,
    VerifyRequest,
    VerifyRunning,
)
from haversack.verify_devices import VerifyDevice
from haversack_server.cleanup import to_its_end
from haversack_server.job import Job
from haversack_server.leftovers import VALUES
from haversack_server.local_place import LocalPlace
from haversack_server.places import JobProcess, Place, Start
from haversack_server.processes import NotStartedError
from haversack_server.verify import reports
from haversack_server.verify.frames import FrameError
from haversack_server.verify.library import is_of_library
from haversack_server.verify.records import RecordError, from_json, to_json
from haversack_server.verify.resumable import most_ranks

_MOST_STAGES = 100  # a job has about ten; its process is not to be trusted


@dataclass(frozen=True, kw_only=True, slots=True)
class JobLimits:
    """What the operator allows: jobs at once and in all, and the limits of each.

    ``kept_ns`` is how long a report is kept after its job ended. ``memory_bytes`` is half of the
    machine's memory if None, and ``disk_bytes``, what a job's scratch folder may hold, half of what
    is free on its disk at the start.
    """

    cpu_jobs: int = 1
    waiting_jobs: int = 64
    kept_reports: int = 256
    kept_ns: int = 30 * 86_400 * 10**9
    deadline_ns: int = 300 * 10**9
    longest_deadline_ns: int = 3600 * 10**9
    memory_bytes: int | None = None
    disk_bytes: int | None = None


class Executor:
    """Runs jobs in a place, this machine if none is given; asks and judges alike in each."""

    def __init__(
        self,
        allow: Sequence[str],
        path: Sequence[str],
        limits: JobLimits,
        place: Place | None = None,
        *,
        weights_dirs: Sequence[str] = (),
    ) -> None:
        self._allow = tuple(allow)
        self._path = tuple(os.path.abspath(folder) for folder in path)
        self._weights_dirs = tuple(weights_dirs)
        self._limits = limits
        self.place = place or LocalPlace(limits.cpu_jobs)

    async def run(self, job: Job, begun: Callable[[], object]) -> VerifyReport:
        """Run a job to its end, whatever that is; cancellation kills its process.

        A cancellation that comes once the job has ended, while its process is closed, is too late
        and changes nothing. ``begun`` is called once it waits for nothing more.
        """
        report = reports.blank(job.request, job.job_id)
        where = _Where(device=job.device, executor=self.place.name)
        try:
            process = await self.place.start(self._start(job))
            where.gpus = process.gpus
        except NotStartedError as failed:
            reason = FailureReason.WORKER_NOT_STARTED
            return reports.failed(report, VerifyFailure(reason=reason, message=str(failed)))
        try:
            begun()
            ended = await self._follow(job, process, where)
        finally:
            closing = asyncio.ensure_future(process.close())
            with contextlib.suppress(asyncio.CancelledError):  # what has ended keeps its report
                await to_its_end(closing)
        if isinstance(ended, VerifyFailure):
            ended = reports.failed(report, ended)
        return _completed(ended, where, closing.result())

    def _start(self, job: Job) -> Start:
        return Start(
            job_id=job.job_id,
            device=job.device,
            deadline_ns=self._deadline_ns(job),
            memory_bytes=job.request.limits.memory_bytes,
            most_memory_bytes=self._limits.memory_bytes,
            disk_bytes=self._limits.disk_bytes,
            threads=job.request.threads or 1,
            ranks=most_ranks(job.request),
            device_count=job.request.device_count or 1,
            preloads=_preloads(job.request),
        )

    def _deadline_ns(self, job: Job) -> int:
        asked = job.request.limits.deadline_ns or self._limits.deadline_ns
        return min(asked, self._limits.longest_deadline_ns)

    async def _follow(
        self, job: Job, process: JobProcess, where: "_Where"
    ) -> VerifyReport | VerifyFailure:
        deadline_ns = self._deadline_ns(job)
        job.emit(running=VerifyRunning(device=job.device, deadline_ns=deadline_ns))
        try:
            async with asyncio.timeout(deadline_ns / 1e9):
                await process.send(self._order(job, process.scratch))
                return await _unless_overfilled(self._listen(job, process, where), process)
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

    def _order(self, job: Job, scratch: str) -> Mapping[str, Any]:
        device = job.request.device
        # The process sees its own GPUs alone, the first of which is then 0.
        request = replace(job.request, device="cuda:0" if device.startswith("cuda") else device)
        return {
            "job_id": job.job_id,
            "request": to_json(request),
            "allow": self._allow,
            "path": self._path,
            "weights_dirs": self._weights_dirs,
            "values_file": f"{scratch}/{VALUES}",
        }

    async def _listen(
        self, job: Job, process: JobProcess, where: "_Where"
    ) -> VerifyReport | VerifyFailure:
        told = 0
        while (message := await process.receive()) is not None:
            if "report" in message:
                return _own(job, from_json(VerifyReport, message["report"]))
            told += 1
            if told > _MOST_STAGES:
                raise FrameError(f"there are more than {_MOST_STAGES} frames before the report")
            if "environment" in message:
                where.said = from_json(VerifyEnvironment, message["environment"])
            elif "progress" in message:
                job.emit(progress=from_json(VerifyProgress, message["progress"]))
            else:
                raise FrameError("a frame is neither progress nor report")
        status = await process.status()
        how = "was lost with the worker" if status is None else reports.ended(status)
        return VerifyFailure(
            reason=FailureReason.WORKER_LOST,
            message=f"The job's process {how} before its report",
            exit_status=status,
        )


def _own(job: Job, report: VerifyReport) -> VerifyReport:
    """Take what a process reports for its own job, of which it may say what it likes."""
    if not report.verdict:
        raise FrameError("it has no verdict")
    begun = reports.blank(job.request, job.job_id)
    return replace(report, job_id=begun.job_id, workload=begun.workload, seed=begun.seed)


async def _unless_overfilled(
    listening: Coroutine[Any, Any, VerifyReport | VerifyFailure], process: JobProcess
) -> VerifyReport | VerifyFailure:
    """Listen to a job until its end, or until its scratch folder holds too much."""
    ended = asyncio.ensure_future(listening)
    filled = asyncio.ensure_future(process.overfilled())
    try:
        await asyncio.wait((ended, filled), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            return ended.result()
        message = f"The job was killed: {filled.result()}"
        return VerifyFailure(reason=FailureReason.OUT_OF_DISK, message=message)
    finally:
        ended.cancel()
        filled.cancel()
        await asyncio.gather(ended, filled, return_exceptions=True)


@dataclass(kw_only=True, slots=True)
class _Where:
    """Where a job runs: its devices as the caller calls them, and what its process says first."""

    device: str
    executor: str
    gpus: tuple[VerifyDevice, ...] = ()
    said: VerifyEnvironment | None = None

    def completed(self, said: VerifyEnvironment) -> VerifyEnvironment:
        """Put into a process's words what it does not know; its GPUs are 0 on for it."""
        return replace(said, device=self.device, executor=self.executor, gpus=self.gpus)


def _preloads(request: VerifyRequest) -> tuple[str, ...]:
    """Name what takes seconds to load, and serves later jobs too."""
    wanted = {
        "library": is_of_library(request.workload.name),
        "ranks": request.world is not None and request.world.size > 1,
        "resume": request.resume is not None,
    }
    return tuple(name for name, is_wanted in wanted.items() if is_wanted)


def _completed(report: VerifyReport, where: _Where, last_words: str) -> VerifyReport:
    """Add what the process does not know, or could not tell: what it printed, where it ran."""
    environment = report.environment or where.said
    if environment is not None:
        report = replace(report, environment=where.completed(environment))
    if report.failure is not None:
        return replace(report, failure=replace(report.failure, stderr_tail=last_words))
    return report
