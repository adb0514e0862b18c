"""A command line whose client is a fake: it keeps what it is asked, and answers what it is told."""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import haversack
from haversack.cli import entry
from haversack.estimate import Estimate
from haversack.plan import Plan
from haversack.verify import JobState, ListWorkloadsResponse, VerifyEvent, VerifyReport
from haversack.verify_devices import ListVerifyDevicesResponse
from haversack.verify_jobs import ListVerifyJobsResponse, VerifyJob


@dataclass
class FakeClient:
    """Answers with its own attributes; an exception among them is raised."""

    estimated: Estimate | Exception = field(default_factory=Estimate)
    planned: Plan | Exception = field(default_factory=Plan)
    events: list[VerifyEvent | BaseException] = field(default_factory=list)
    workloads: ListWorkloadsResponse = field(default_factory=ListWorkloadsResponse)
    asked: list[Any] = field(default_factory=list)
    keywords: dict[str, Any] = field(default_factory=dict)
    connections: list[tuple[str | None, tuple[str, ...]]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    jobs: list[VerifyJob] = field(default_factory=list)
    devices: ListVerifyDevicesResponse = field(default_factory=ListVerifyDevicesResponse)

    @contextlib.contextmanager
    def connect(
        self, address: str | None = None, *, allow: tuple[str, ...] = ()
    ) -> Iterator["FakeClient"]:
        self.connections.append((address, tuple(allow)))
        yield self

    def estimate(self, request: Any, **keywords: Any) -> Estimate:
        answer: Estimate = self._answer(self.estimated, request, keywords)
        return answer

    def plan(self, request: Any, **keywords: Any) -> Plan:
        answer: Plan = self._answer(self.planned, request, keywords)
        return answer

    def list_workloads(self, **keywords: Any) -> ListWorkloadsResponse:
        self.keywords = keywords
        return self.workloads

    def list_verify_devices(self, **keywords: Any) -> ListVerifyDevicesResponse:
        self.keywords = keywords
        return self.devices

    def verify_events(self, request: Any, **keywords: Any) -> Iterator[VerifyEvent]:
        self.asked.append(request)
        self.keywords = keywords
        for event in self.events:
            if isinstance(event, BaseException):
                raise event
            yield event

    def get_verify_job(self, job_id: str, **_: Any) -> VerifyJob:
        self.asked.append(job_id)
        return self.jobs[0]

    def list_verify_jobs(self, **keywords: Any) -> ListVerifyJobsResponse:
        self.keywords = keywords
        return ListVerifyJobsResponse(jobs=tuple(self.jobs), next_page_token="1:a")

    def cancel_verify(self, job_id: str, **_: Any) -> JobState:
        self.cancelled.append(job_id)
        return JobState.CANCELLED

    def reports(self, report: VerifyReport) -> None:
        """Let a job end with a report."""
        self.events = [VerifyEvent(job_id="job-1", report=report)]

    def _answer(self, answer: Any, request: Any, keywords: dict[str, Any]) -> Any:
        self.asked.append(request)
        self.keywords = keywords
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass(frozen=True)
class Done:
    """What a run of the command line left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON object that it must be."""
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "HAVERSACK_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    fake = FakeClient()
    monkeypatch.setattr(haversack, "connect", fake.connect, raising=False)
    return fake


@pytest.fixture
def haversack_run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run the command line in this process."""

    def run(*arguments: str) -> Done:
        code = entry.run(arguments)
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], str]:
    """Write a file, and give its path."""

    def written(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return written
