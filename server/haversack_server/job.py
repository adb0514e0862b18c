"""One Verify job as its callers see it: events from the first on, and its end.

Knows nothing of processes; ``jobs`` runs it.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from haversack.errors import HaversackError, InternalError
from haversack.verify import FailureReason, JobState, VerifyEvent, VerifyReport, VerifyRequest
from haversack_server.verify.shardable import devices_of, gpu_count

_ENDS = {
    FailureReason.CANCELLED: JobState.CANCELLED,
    FailureReason.SERVER_RESTARTED: JobState.LOST,
}


def end_of(report: VerifyReport) -> JobState:
    """Give the state of a job that ended with a report."""
    reason = report.failure.reason if report.failure else FailureReason.UNSPECIFIED
    return _ENDS.get(reason, JobState.FINISHED)


@dataclass(slots=True, eq=False)
class Job:
    """Keeps the events of a job, and hands them to everybody who listens."""

    job_id: str
    request: VerifyRequest
    state: JobState = JobState.QUEUED
    report: VerifyReport | None = None
    fault: HaversackError | None = None
    submitted_unix_ns: int = field(default_factory=time.time_ns)
    ended_unix_ns: int | None = None
    abandoned: Callable[[], object] = lambda: None
    _events: list[VerifyEvent] = field(default_factory=list)
    _listeners: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _start_ns: int = field(default_factory=time.monotonic_ns)

    @property
    def device(self) -> str:
        """The device that it runs on."""
        return self.request.device or "cpu"

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that it needs for itself: as many GPUs as it asks for, or the CPU."""
        return devices_of(self.device, gpu_count(self.request))

    @property
    def is_over(self) -> bool:
        """Whether nothing follows."""
        return self.report is not None or self.fault is not None

    async def until_over(self) -> None:
        """Wait for its end."""
        while not self.is_over:
            await self._news.wait()

    async def events(self) -> AsyncGenerator[VerifyEvent, None]:
        """Give every event from the first on; the report is the last.

        A job that nobody listens to any more is cancelled, unless its request keeps it.
        """
        self._listeners += 1
        try:
            async for event in self._follow():
                yield event
        finally:
            self._listeners -= 1
            if not (self.is_over or self._listeners or self.request.keep_after_disconnect):
                self.abandoned()

    async def _follow(self) -> AsyncGenerator[VerifyEvent, None]:
        given = 0
        while True:
            news = self._news
            while given < len(self._events):
                given += 1
                yield self._events[given - 1]
            if self.fault is not None:
                raise self.fault
            if self.report is not None:
                return
            await news.wait()

    def emit(self, **event: Any) -> None:
        """Tell those who listen; ``event`` is one field of VerifyEvent."""
        self._tell(time.monotonic_ns() - self._start_ns, event)

    def finish(self, report: VerifyReport, ended_unix_ns: int) -> None:
        """End the job with its report."""
        self._end(report, ended_unix_ns)
        self.emit(report=report)

    def recall(self, report: VerifyReport, ended_unix_ns: int) -> None:
        """End a job that an earlier server knew; its report is its one event."""
        self._end(report, ended_unix_ns)
        self._tell(max(0, ended_unix_ns - self.submitted_unix_ns), {"report": report})

    def _end(self, report: VerifyReport, ended_unix_ns: int) -> None:
        self.state = end_of(report)
        self.report = report
        self.ended_unix_ns = ended_unix_ns

    def _tell(self, elapsed_ns: int, event: Mapping[str, Any]) -> None:
        self._events.append(VerifyEvent(job_id=self.job_id, elapsed_ns=elapsed_ns, **event))
        news, self._news = self._news, asyncio.Event()
        news.set()

    def fail(self, fault: BaseException) -> None:
        """End the job without a report, by a fault of the server's own."""
        self.state = JobState.FINISHED
        self.ended_unix_ns = time.time_ns()
        self.fault = InternalError(f"job {self.job_id} ended by a fault of the server: {fault!r}")
        self._news.set()
