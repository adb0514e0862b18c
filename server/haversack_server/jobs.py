"""Runs Verify jobs: a queue per device, one process each, and a report whatever happens to it.

Supervises processes and knows nothing of what they compute: no torch, no gRPC. A killed process, a
hang or a dead zygote ends its job with a typed reason, and the next job runs.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Self

from haversack.errors import InvalidRequestError, NotFoundError, OverloadedError
from haversack.verify import (
    FailureReason,
    JobState,
    VerifyFailure,
    VerifyQueued,
    VerifyReport,
    VerifyRequest,
    WorkloadInfo,
)
from haversack_server.execution import Executor, JobLimits
from haversack_server.job import Job
from haversack_server.verify import reports
from haversack_server.verify.admissible import check_admissible
from haversack_server.verify.catalog import WORKLOADS, with_own_schedule
from haversack_server.verify.entry_points import check_prefix

_log = logging.getLogger(__name__)
_RETRY_AFTER_NS = 5 * 10**9


class JobRunner:
    """Takes requests, runs them one after another on each device, keeps their reports.

    ``allow`` are the dotted prefixes of entry points that may run, ``path`` folders in which the
    worker looks for them before the installed packages. ``on_report`` hears of every report.
    Used as ``async with``; at its end every job is cancelled and no process is left.
    """

    def __init__(
        self,
        allow: Sequence[str] = (),
        path: Sequence[str] = (),
        *,
        limits: JobLimits | None = None,
        on_report: Callable[[VerifyReport], object] | None = None,
    ) -> None:
        for prefix in allow:
            check_prefix(prefix)
        self._allow = tuple(allow)
        self._limits = limits or JobLimits()
        self._executor = Executor(self._allow, path, self._limits)
        self._on_report = on_report
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[VerifyReport]] = {}
        self._slots: dict[str, asyncio.Semaphore] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for job_id in list(self._tasks):
            self._stop(job_id)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._executor.close()

    async def warm(self) -> None:
        """Start the zygote now, so that the first job need not wait for it."""
        await self._executor.warm()

    def workloads(self) -> tuple[WorkloadInfo, ...]:
        """List the built-in workloads."""
        return tuple(WORKLOADS[name] for name in sorted(WORKLOADS))

    def counts(self) -> Mapping[JobState, int]:
        """Count the jobs that are known, by state."""
        # Held first: metrics are read in another thread.
        return Counter(job.state for job in tuple(self._jobs.values()))

    def submit(self, request: VerifyRequest) -> Job:
        """Take a request: a new job, or the one that this id already names.

        Raises what says why it cannot run: InvalidRequestError, MissingExtraError,
        NotSupportedError, OverloadedError.
        """
        request = with_own_schedule(request)
        known = self._jobs.get(request.job_id)
        if known is not None:
            return _same(known, request)
        check_admissible(request, self._allow)
        self._check_room()
        job = Job(request.job_id or uuid.uuid4().hex, request)
        job.abandoned = lambda: self._stop(job.job_id)
        self._forget_oldest()
        self._jobs[job.job_id] = job
        task = self._tasks[job.job_id] = asyncio.create_task(self._run(job))
        # Not in the task itself: one that is cancelled before its first step never takes it.
        task.add_done_callback(lambda task: self._end(job, task))
        return job

    def job(self, job_id: str) -> Job:
        """Find a job. Raises NotFoundError."""
        if job_id not in self._jobs:
            raise NotFoundError(f"there is no job {job_id!r}, or its report is no longer kept")
        return self._jobs[job_id]

    async def cancel(self, job_id: str) -> JobState:
        """Stop a job and wait for its end; one that is over stays as it is."""
        job = self.job(job_id)
        task = self._tasks.get(job_id)
        self._stop(job_id)
        if task is not None:
            await asyncio.wait((task,))
        return job.state

    def _check_room(self) -> None:
        if len(self._tasks) >= self._limits.waiting_jobs:
            raise OverloadedError(
                f"{len(self._tasks)} jobs wait or run already; try again later",
                retry_after_ns=_RETRY_AFTER_NS,
            )

    def _forget_oldest(self) -> None:
        over = [job_id for job_id, job in self._jobs.items() if job.is_over]
        for job_id in over[: max(0, len(over) - self._limits.kept_reports + 1)]:
            del self._jobs[job_id]

    def _stop(self, job_id: str) -> None:
        task = self._tasks.get(job_id)
        # Once only: a second cancellation would reach the clean-up of the first.
        if task is not None and not task.cancelling():
            task.cancel()

    async def _run(self, job: Job) -> VerifyReport:
        slots = self._slots.setdefault(job.device, asyncio.Semaphore(self._width(job.device)))
        before = [other for other in self._jobs.values() if other.device == job.device]
        position = sum(not other.is_over for other in before) - 1
        job.emit(queued=VerifyQueued(device=job.device, position=position))
        async with slots:
            job.state = JobState.RUNNING
            return await self._executor.run(job)

    def _end(self, job: Job, task: "asyncio.Task[VerifyReport]") -> None:
        del self._tasks[job.job_id]
        if task.cancelled():
            report = reports.failed(reports.blank(job.request, job.job_id), _CANCELLED)
        elif (fault := task.exception()) is not None:
            _log.error("job failed", exc_info=fault, extra={"job_id": job.job_id})
            job.fail(fault)
            return
        else:
            report = task.result()
        job.finish(report)
        if self._on_report is not None:
            self._on_report(report)

    def _width(self, device: str) -> int:
        return self._limits.cpu_jobs if device == "cpu" else 1


_CANCELLED = VerifyFailure(
    reason=FailureReason.CANCELLED,
    message="The job was cancelled, or nobody read its stream any more",
)


def _same(known: Job, request: VerifyRequest) -> Job:
    if replace(request, job_id=known.request.job_id) == known.request:
        return known
    raise InvalidRequestError(
        f"{request.job_id!r} names a job with another request; take another id, or send the same "
        "request again",
        field="job_id",
    )
