"""The jobs that a server knows: those that wait, those that run, and reports for a while.

In memory; with a ``Store`` also in a file, from which a server that restarts reads them. Knows how
many reports are kept and how long, and that a job cannot outlive its server.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from haversack.errors import InvalidRequestError, NotFoundError
from haversack.verify import (
    FailureReason,
    JobState,
    VerifyFailure,
    VerifyReport,
    VerifyVerdict,
)
from haversack.verify_jobs import (
    USUAL_PAGE,
    ListVerifyJobsRequest,
    ListVerifyJobsResponse,
    VerifyJob,
)
from haversack_server.job import Job, end_of
from haversack_server.store import Row, Store
from haversack_server.verify import reports

LOST = VerifyFailure(
    reason=FailureReason.SERVER_RESTARTED,
    message="The server stopped while the job waited or ran; ask again under another id",
)


@dataclass(slots=True)
class JobBook:
    """Finds jobs by their ids, lists them, and forgets the oldest reports.

    ``kept_reports`` and ``kept_ns`` are how many reports are kept, and how long after their end.
    """

    kept_reports: int
    kept_ns: int
    store: Store | None = None
    now: Callable[[], int] = time.time_ns
    _jobs: dict[str, Job] = field(default_factory=dict)

    def load(self) -> None:
        """Read what an earlier server kept; what waited or ran then is lost."""
        if self.store is None:
            return
        for row in self.store.rows():
            job = self._jobs[row.job_id] = Job(
                row.job_id, row.request, submitted_unix_ns=row.submitted_unix_ns
            )
            report = row.report or reports.failed(reports.blank(row.request, row.job_id), LOST)
            job.recall(report, row.ended_unix_ns or self.now())
            if row.report is None:
                self.keep(job)
        self._forget_oldest()

    def add(self, job: Job) -> None:
        """Take a new job; the oldest reports make room."""
        self._jobs.pop(job.job_id, None)  # an id that is used again stands last, not where it was
        self._jobs[job.job_id] = job
        self._forget_oldest()

    def keep(self, job: Job) -> "Future[None]":
        """Write where a job stands; done at once without a file."""
        written = self._write(_row(job))
        if job.is_over:
            self._forget_oldest()
        return written

    async def finish(self, job: Job, report: VerifyReport) -> None:
        """End a job with its report, which is written first: what is told outlives the server."""
        ended_unix_ns = self.now()
        state = end_of(report)
        row = replace(_row(job), state=state, ended_unix_ns=ended_unix_ns, report=report)
        try:
            await settled(self._write(row))
        finally:  # a job needs no file
            job.finish(report, ended_unix_ns)
            self._forget_oldest()

    def _write(self, row: Row) -> "Future[None]":
        if self.store is not None:
            return self.store.put(row)
        written: Future[None] = Future()
        written.set_result(None)
        return written

    def get(self, job_id: str) -> Job | None:
        """Find a job; None where there is none, or its report is no longer kept."""
        job = self._jobs.get(job_id)
        if job is None or self._is_old(job):
            return None
        return job

    def find(self, job_id: str) -> Job:
        """Find a job. Raises NotFoundError."""
        job = self.get(job_id)
        if job is None:
            raise NotFoundError(f"there is no job {job_id!r}, or its report is no longer kept")
        return job

    def on(self, device: str) -> list[Job]:
        """List the jobs of a device that are not over."""
        return [job for job in self._jobs.values() if job.device == device and not job.is_over]

    def counts(self) -> Mapping[JobState, int]:
        """Count the jobs by state. Other threads may ask."""
        return Counter(job.state for job in tuple(self._jobs.values()))

    def page(self, request: ListVerifyJobsRequest) -> ListVerifyJobsResponse:
        """List a page of jobs, the latest first."""
        size = request.page_size or USUAL_PAGE
        asked = [job for job in self._before(request.page_token) if not self._is_old(job)]
        if request.states:
            asked = [job for job in asked if job.state in request.states]
        shown = asked[:size]
        return ListVerifyJobsResponse(
            jobs=tuple(summary(job) for job in shown),
            next_page_token=_token(shown[-1]) if len(asked) > size else "",
        )

    def _before(self, token: str) -> Iterator[Job]:
        latest_first = sorted(self._jobs.values(), key=_place, reverse=True)
        if not token:
            return iter(latest_first)
        submitted, _, job_id = token.partition(":")
        if not (submitted.isascii() and submitted.isdigit()) or len(submitted) > 20:
            sentence = f"{token[:200]!r} is no next_page_token of a page; leave it out to begin"
            raise InvalidRequestError(sentence, field="page_token")
        end = (int(submitted), job_id)
        return (job for job in latest_first if _place(job) < end)

    def _is_old(self, job: Job) -> bool:
        return job.ended_unix_ns is not None and self.now() - job.ended_unix_ns > self.kept_ns

    def _forget_oldest(self) -> None:
        over = [job for job in self._jobs.values() if job.is_over]
        more = max(0, len(over) - self.kept_reports)
        gone = over[:more] + [job for job in over[more:] if self._is_old(job)]
        for job in gone:
            del self._jobs[job.job_id]
        if gone and self.store is not None:
            self.store.forget(job.job_id for job in gone)


async def settled(written: "Future[None]") -> None:
    """Wait for what another thread writes; not even a turn of the loop without a file."""
    if not written.done():
        await asyncio.wrap_future(written)


def summary(job: Job) -> VerifyJob:
    """Tell where a job stands, without its report."""
    workload, report = job.request.workload, job.report
    failure = report.failure if report else None
    return VerifyJob(
        job_id=job.job_id,
        workload=workload.name or workload.entry_point,
        args_json=workload.args_json,
        device=job.device,
        state=job.state,
        verdict=report.verdict if report else VerifyVerdict.UNSPECIFIED,
        failure_reason=failure.reason if failure else FailureReason.UNSPECIFIED,
        submitted_unix_ns=job.submitted_unix_ns,
        ended_unix_ns=job.ended_unix_ns,
    )


def _row(job: Job) -> Row:
    return Row(
        job_id=job.job_id,
        request=job.request,
        state=job.state,
        submitted_unix_ns=job.submitted_unix_ns,
        ended_unix_ns=job.ended_unix_ns,
        report=job.report,
    )


def _place(job: Job) -> tuple[int, str]:
    return job.submitted_unix_ns, job.job_id


def _token(job: Job) -> str:
    return f"{job.submitted_unix_ns}:{job.job_id}"
