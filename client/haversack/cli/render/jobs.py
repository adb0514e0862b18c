"""Verify jobs on a page: one line each, the latest first; a narrow page leaves columns out."""

import datetime
from collections.abc import Sequence

from rich.text import Text

from haversack.cli.render.page import BAD, DIM, GOOD, WARN, Column, Page
from haversack.units import format_ns
from haversack.verify import JobState, VerifyVerdict
from haversack.verify_jobs import VerifyJob

_STYLES = {
    VerifyVerdict.EQUIVALENT: GOOD,
    VerifyVerdict.DIFFERENT: BAD,
    VerifyVerdict.INCONCLUSIVE: WARN,
    VerifyVerdict.FAILED: BAD,
}
_HEADINGS = ("job", "state", "verdict", "workload", "device", "submitted, UTC", "took")
_WHOLE = ("job", "state", "submitted, UTC", "took", "at, UTC")
_NARROW = ("job", "came to", "workload", "at, UTC")
_WIDE_ENOUGH = 112  # columns, for an id of ours and what folds beside it without breaking words


def draw_jobs(page: Page, jobs: Sequence[VerifyJob]) -> None:
    """Draw jobs as a table."""
    if not jobs:
        page.line(("no jobs", DIM))
        return
    is_wide = page.width >= _WIDE_ENOUGH
    headings, row = (_HEADINGS, _row) if is_wide else (_NARROW, _narrow_row)
    columns = [Column(name, whole=name in _WHOLE) for name in headings]
    page.table(columns, [row(job) for job in jobs])


def _row(job: VerifyJob) -> tuple[str | Text, ...]:
    return (
        job.job_id,
        job.state.name.lower(),
        _verdict(job),
        _workload(job),
        job.device,
        _time(job.submitted_unix_ns, "%Y-%m-%d %H:%M"),
        "" if job.ended_unix_ns is None else format_ns(_duration(job.ended_unix_ns, job)),
    )


def _narrow_row(job: VerifyJob) -> tuple[str | Text, ...]:
    """Leave out what JSON and wide pages tell, and the state where there is a verdict."""
    state = _verdict(job) or Text(job.state.name.lower())
    return job.job_id, state, _workload(job), _time(job.submitted_unix_ns, "%m-%d %H:%M")


def _workload(job: VerifyJob) -> str:
    return f"{job.workload} with {job.args_json}" if job.args_json else job.workload


def _verdict(job: VerifyJob) -> Text:
    """Tell the verdict of a job that ended by itself; the state tells the rest."""
    if job.state is not JobState.FINISHED:
        return Text("")
    reason = job.failure_reason
    why = f", {reason.name.lower().replace('_', ' ')}" if reason else ""
    return Text(f"{job.verdict.name.lower()}{why}", _STYLES.get(job.verdict, ""))


def _duration(ended_unix_ns: int, job: VerifyJob) -> int:
    return max(0, ended_unix_ns - job.submitted_unix_ns)  # the clock may have been set


def _time(unix_ns: int, form: str) -> str:
    at = datetime.datetime.fromtimestamp(unix_ns // 10**9, datetime.UTC)
    return at.strftime(form)
