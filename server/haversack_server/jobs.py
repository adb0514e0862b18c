"""Runs Verify jobs: a queue per device, one process each, and a report whatever happens to it.

Supervises processes and knows nothing of what they compute: no torch, no gRPC. A killed process, a
hang or a dead zygote ends its job with a typed reason, and the next job runs.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from haversack.errors import InvalidRequestError, OverloadedError
from haversack.verify import (
    FailureReason,
    JobState,
    VerifyFailure,
    VerifyQueued,
    VerifyReport,
    VerifyRequest,
    WorkloadInfo,
)
from haversack.verify_devices import ListVerifyDevicesResponse
from haversack.verify_jobs import ListVerifyJobsRequest, ListVerifyJobsResponse
from haversack_server.execution import Executor, JobLimits
from haversack_server.job import Job
from haversack_server.job_book import LOST, JobBook, settled
from haversack_server.places import Place
from haversack_server.store import Store
from haversack_server.verify import reports
from haversack_server.verify.admissible import check_admissible
from haversack_server.verify.catalog import WORKLOADS, with_own_settings
from haversack_server.verify.entry_points import check_prefix
from haversack_server.verify.weight_files import check_folder

_log = logging.getLogger(__name__)
_RETRY_AFTER_NS = 5 * 10**9


@dataclass(frozen=True, kw_only=True, slots=True)
class Listeners:
    """Who hears of every report, and of every wait that ended, in nanoseconds, by its device."""

    report: Callable[[VerifyReport], object] = lambda _: None
    waited: Callable[[str, int], object] = lambda *_: None


class JobRunner:
    """Takes requests, runs them one after another on each device, keeps their reports.

    ``allow`` are the dotted prefixes of entry points that may run, ``path`` folders in which the
    worker looks for them before the installed packages, ``weights_dirs`` those in which jobs may
    read weights. Jobs run in ``place``, this machine if None. With a ``store`` they are known after
    a restart. Used as ``async with``; at its end every job is lost and no process is left.
    """

    def __init__(
        self,
        allow: Sequence[str] = (),
        path: Sequence[str] = (),
        *,
        weights_dirs: Sequence[str] = (),
        limits: JobLimits | None = None,
        place: Place | None = None,
        store: Store | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        for prefix in allow:
            check_prefix(prefix)
        for folder in weights_dirs:
            check_folder(folder)
        self._allow = tuple(allow)
        self._weights_dirs = tuple(weights_dirs)
        self._limits = limits or JobLimits()
        self._executor = Executor(
            self._allow, path, self._limits, place, weights_dirs=self._weights_dirs
        )
        self._place = self._executor.place
        self._listeners = listeners or Listeners()
        self._store = store
        self._book = JobBook(self._limits.kept_reports, self._limits.kept_ns, store)
        self._stops: dict[str, VerifyFailure] = {}
        self._is_closing = False
        self._tasks: dict[str, asyncio.Task[VerifyReport]] = {}
        self._ends: set[asyncio.Task[None]] = set()
        self._slots: dict[str, asyncio.Semaphore] = {}

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._book.load)
        except BaseException:
            await self._close_store()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.expect_end()
        for job_id in list(self._tasks):
            self._stop(job_id, LOST)
        await asyncio.gather(*self._ends, return_exceptions=True)
        await self._place.close()
        await self._close_store()

    async def _close_store(self) -> None:
        if self._store is not None:
            await asyncio.to_thread(self._store.close)

    def expect_end(self) -> None:
        """Say that the server ends: a job that loses its listeners from now on is lost by that."""
        self._is_closing = True

    async def warm(self) -> None:
        """Do now what the first job would wait for: a zygote, or a cluster."""
        await self._place.warm()

    async def devices(self) -> ListVerifyDevicesResponse:
        """List the GPUs that jobs may have, as they are now."""
        return await self._place.devices()

    def workloads(self) -> tuple[WorkloadInfo, ...]:
        """List the built-in workloads."""
        return tuple(WORKLOADS[name] for name in sorted(WORKLOADS))

    def counts(self) -> Mapping[JobState, int]:
        """Count the jobs that are known, by state; other threads may ask."""
        return self._book.counts()

    def submit(self, request: VerifyRequest) -> Job:
        """Take a request: a new job, or the one that this id already names.

        Raises what says why it cannot run: InvalidRequestError, MissingExtraError,
        NotSupportedError, OverloadedError.
        """
        request = with_own_settings(request)
        known = self._book.get(request.job_id)
        if known is not None:
            return _same(known, request)
        check_admissible(request, self._allow, self._place.check_device, self._weights_dirs)
        self._check_room()
        job = Job(request.job_id or uuid.uuid4().hex, request)
        job.abandoned = lambda: self._stop(job.job_id, LOST if self._is_closing else _LEFT)
        self._book.add(job)
        task = self._tasks[job.job_id] = asyncio.create_task(self._run(job))
        # Not in the task itself: one that is cancelled before its first step never takes it.
        end = asyncio.create_task(self._end(job, task))
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)
        return job

    def job(self, job_id: str) -> Job:
        """Find a job. Raises NotFoundError."""
        return self._book.find(job_id)

    def page(self, request: ListVerifyJobsRequest) -> ListVerifyJobsResponse:
        """List a page of the jobs that are known, the latest first."""
        return self._book.page(request)

    async def cancel(self, job_id: str) -> JobState:
        """Stop a job and wait for its end; one that is over stays as it is."""
        job = self.job(job_id)
        self._stop(job_id, _CANCELLED)
        await job.until_over()
        return job.state

    def _check_room(self) -> None:
        if len(self._tasks) >= self._limits.waiting_jobs:
            raise OverloadedError(
                f"{len(self._tasks)} jobs wait or run already; try again later",
                retry_after_ns=_RETRY_AFTER_NS,
            )

    def _stop(self, job_id: str, why: VerifyFailure) -> None:
        task = self._tasks.get(job_id)
        # Once only: a second cancellation would reach the clean-up of the first.
        if task is not None and not task.cancelling():
            self._stops[job_id] = why
            task.cancel()

    async def _run(self, job: Job) -> VerifyReport:
        position = self._book.on(job.device).index(job)
        await settled(self._book.keep(job))  # what a caller is told of is known after a restart
        job.emit(queued=VerifyQueued(device=job.device, position=position))
        since_ns = time.monotonic_ns()
        async with contextlib.AsyncExitStack() as held:
            for device in job.devices:  # in their order, so that two jobs never wait for each other
                await held.enter_async_context(self._slots_of(device))
            return await self._executor.run(job, lambda: self._begin(job, since_ns))

    def _slots_of(self, device: str) -> asyncio.Semaphore:
        return self._slots.setdefault(device, asyncio.Semaphore(self._place.width(device)))

    def _begin(self, job: Job, since_ns: int) -> None:
        self._listeners.waited(job.device, time.monotonic_ns() - since_ns)
        job.state = JobState.RUNNING
        self._book.keep(job)

    async def _end(self, job: Job, task: "asyncio.Task[VerifyReport]") -> None:
        await asyncio.wait((task,))
        del self._tasks[job.job_id]
        why = self._stops.pop(job.job_id, _CANCELLED)
        if task.cancelled():
            report = reports.failed(reports.blank(job.request, job.job_id), why)
        elif (fault := task.exception()) is not None:
            _log.error("job failed", exc_info=fault, extra={"job_id": job.job_id})
            job.fail(fault)
            return
        else:
            report = task.result()
        await self._book.finish(job, report)
        self._listeners.report(report)


_CANCELLED = VerifyFailure(
    reason=FailureReason.CANCELLED,
    message="The job was cancelled",
)
_LEFT = VerifyFailure(
    reason=FailureReason.CANCELLED,
    message="Nobody read the job's stream any more, and its request does not keep it",
)


def _same(known: Job, request: VerifyRequest) -> Job:
    """Attach to a known job; whoever asks to keep it does so for all."""
    keep = known.request.keep_after_disconnect or request.keep_after_disconnect
    kept = replace(known.request, keep_after_disconnect=keep)
    if replace(request, job_id=kept.job_id, keep_after_disconnect=keep) == kept:
        known.request = kept
        return known
    raise InvalidRequestError(
        f"{request.job_id!r} names a job with another request; take another id, or send the same "
        "request again",
        field="job_id",
    )
