"""Verify's jobs as a server keeps them: those that wait, those that run, and stored reports.

What each field means is said once, in ``jobs.proto``.
"""

from dataclasses import dataclass

from haversack import checks
from haversack.errors import Violation, check
from haversack.verify import JobState, job_id_violations
from haversack.verify_report import FailureReason, VerifyReport, VerifyVerdict

LARGEST_PAGE = 1000
USUAL_PAGE = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyJob:
    """A job, and where it stands."""

    job_id: str = ""
    workload: str = ""
    args_json: str = ""
    device: str = ""
    state: JobState = JobState.UNSPECIFIED
    verdict: VerifyVerdict = VerifyVerdict.UNSPECIFIED
    failure_reason: FailureReason = FailureReason.UNSPECIFIED
    submitted_unix_ns: int = 0
    ended_unix_ns: int | None = None
    report: VerifyReport | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GetVerifyJobRequest:
    """Asks for one job."""

    job_id: str

    def __post_init__(self) -> None:
        check(job_id_violations(self.job_id))


@dataclass(frozen=True, kw_only=True, slots=True)
class GetVerifyJobResponse:
    """A job, its report included if it is over."""

    job: VerifyJob


@dataclass(frozen=True, kw_only=True, slots=True)
class ListVerifyJobsRequest:
    """Asks for the jobs that the server knows, the latest first, page by page."""

    page_size: int | None = None
    page_token: str = ""
    states: tuple[JobState, ...] = ()

    def __post_init__(self) -> None:
        found = checks.optional_integer("page_size", self.page_size, least=1, most=LARGEST_PAGE)
        for index, state in enumerate(self.states):
            if state not in tuple(JobState)[1:]:
                shown = getattr(state, "name", repr(state))
                known = ", ".join(each.name for each in JobState if each)
                sentence = f"{shown} is not the state of a job; use one of {known}"
                found.append(Violation(f"states[{index}]", sentence))
        check(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class ListVerifyJobsResponse:
    """A page of jobs, without their reports."""

    jobs: tuple[VerifyJob, ...] = ()
    next_page_token: str = ""
