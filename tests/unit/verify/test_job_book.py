"""What a server knows of its jobs: how many, how long, in which order, and after a restart."""

import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest

from haversack.errors import HaversackError, InvalidRequestError, NotFoundError
from haversack.run import WorkloadReference
from haversack.verify import (
    Facet,
    FailureReason,
    JobState,
    VerifyReport,
    VerifyRequest,
    VerifyVerdict,
    VerifyWaiver,
)
from haversack.verify_facets import FacetValue
from haversack.verify_jobs import ListVerifyJobsRequest
from haversack_server.job import Job
from haversack_server.job_book import JobBook, summary
from haversack_server.jobs import JobRunner
from haversack_server.store import Row, Store

DAY_NS = 86_400 * 10**9
REQUEST = VerifyRequest(
    workload=WorkloadReference(name="mlp", args_json='{"layers": 2}'),
    waivers=(Facet.BUFFERS,),
    threads=2,
)
REPORT = VerifyReport(
    workload="mlp",
    verdict=VerifyVerdict.EQUIVALENT,
    warnings=("one \u2603",),
    waivers=(VerifyWaiver(facet=Facet.BUFFERS, value=FacetValue.DIFFERENT, used=True),),
)


class Faults:
    """Counts what could not be written."""

    count = 0

    def __call__(self) -> None:
        self.count += 1


def opened(folder: pathlib.Path) -> Store:
    return Store(folder, on_fault=pytest.fail)


def book(store: Store | None = None, *, reports: int = 10, now: int = 0) -> JobBook:
    return JobBook(reports, DAY_NS, store, now=lambda: now)


def job(number: int, *, over_at: int | None = None) -> Job:
    made = Job(f"job-{number}", REQUEST, submitted_unix_ns=number)
    if over_at is not None:
        made.recall(REPORT, over_at)
    return made


def test_a_restart_knows_reports_and_calls_what_was_not_over_lost(tmp_path: pathlib.Path) -> None:
    store = opened(tmp_path / "state")
    first = book(store)
    for each in (job(1, over_at=5), job(2)):
        first.add(each)
        first.keep(each)
    running = job(3)
    first.add(running)
    running.state = JobState.RUNNING
    first.keep(running).result()
    store.close()
    for _ in range(2):  # what was lost once stays so
        store = opened(tmp_path / "state")
        second = book(store, now=9)
        second.load()
        assert second.find("job-1").report == REPORT
        assert second.find("job-1").request == REQUEST
        assert second.find("job-1").ended_unix_ns == 5
        for name in ("job-2", "job-3"):
            lost = second.find(name)
            assert lost.state is JobState.LOST
            assert lost.is_over
            assert summary(lost).verdict is VerifyVerdict.FAILED
            assert summary(lost).failure_reason is FailureReason.SERVER_RESTARTED
        assert second.counts() == {JobState.FINISHED: 1, JobState.LOST: 2}
        store.close()


def test_a_job_that_was_written_survives_a_server_that_is_killed(tmp_path: pathlib.Path) -> None:
    code = f"""
import os, pathlib, signal
from haversack.run import WorkloadReference
from haversack.verify import JobState, VerifyRequest
from haversack_server.store import Row, Store

store = Store(pathlib.Path({str(tmp_path)!r}), on_fault=exit)
request = VerifyRequest(workload=WorkloadReference(name="mlp"))
row = Row(job_id="a", request=request, state=JobState.RUNNING, submitted_unix_ns=1)
store.put(row).result()
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    store = opened(tmp_path)
    later = book(store)
    later.load()
    assert later.find("a").state is JobState.LOST
    store.close()


def test_the_latest_reports_are_kept_and_what_runs_always(tmp_path: pathlib.Path) -> None:
    store = opened(tmp_path)
    kept = book(store, reports=2)
    kept.add(job(0))
    for number in range(1, 5):
        each = job(number, over_at=0)
        kept.add(each)
        kept.keep(each)
    assert [each.job_id for each in kept.page(ListVerifyJobsRequest()).jobs] == [
        "job-4", "job-3", "job-0",
    ]  # fmt: skip
    with pytest.raises(NotFoundError, match="job-1"):
        kept.find("job-1")
    assert [row.job_id for row in store.rows()] == ["job-3", "job-4"]
    store.close()


def test_a_report_is_kept_for_its_time() -> None:
    old = job(1, over_at=0)
    for now, is_kept in ((DAY_NS, True), (DAY_NS + 1, False)):
        kept = book(now=now)
        kept._jobs[old.job_id] = old
        assert (kept.get("job-1") is old) is is_kept
        assert len(kept.page(ListVerifyJobsRequest()).jobs) == is_kept
        kept.add(job(2))
        assert (len(kept._jobs) == 2) is is_kept


def test_an_id_that_is_used_again_stands_behind_those_that_wait() -> None:
    kept = book(now=DAY_NS + 1)
    kept._jobs["job-1"] = job(1, over_at=0)
    waiting, again = job(2), job(1)
    for each in (waiting, again):
        kept.add(each)
    assert kept.on("cpu") == [waiting, again]
    waiting.recall(REPORT, DAY_NS)
    assert kept.on("cpu") == [again]
    assert kept.on("cuda:0") == []


def test_jobs_are_listed_page_by_page_though_new_ones_come() -> None:
    kept = book()
    for number in range(5):
        kept.add(job(number, over_at=9 if number % 2 else None))
    page = kept.page(ListVerifyJobsRequest(page_size=2))
    assert [each.job_id for each in page.jobs] == ["job-4", "job-3"]
    kept.add(job(7))
    page = kept.page(ListVerifyJobsRequest(page_size=3, page_token=page.next_page_token))
    assert [each.job_id for each in page.jobs] == ["job-2", "job-1", "job-0"]
    assert page.next_page_token == ""
    assert page.jobs[1].args_json == '{"layers": 2}'
    assert page.jobs[1].report is None
    queued = kept.page(ListVerifyJobsRequest(states=(JobState.QUEUED,)))
    assert [each.job_id for each in queued.jobs] == ["job-7", "job-4", "job-2", "job-0"]


@pytest.mark.parametrize("token", ["x", "-1:job", "9" * 21 + ":j", "\u0661:job"])
def test_a_token_of_no_page_is_refused(token: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        book().page(ListVerifyJobsRequest(page_token=token))
    assert refusal.value.field == "page_token"


def test_a_second_server_cannot_have_the_folder(tmp_path: pathlib.Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(HaversackError, match="another server keeps its own there"):
        opened(tmp_path)
    store.close()
    opened(tmp_path).close()


def test_a_folder_that_cannot_be_one_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HaversackError, match=r"cannot keep reports in .*file"):
        opened(tmp_path / "file")
    (tmp_path / "jobs.sqlite").write_text("this is no database, but long enough to be read as one")
    with pytest.raises(HaversackError, match="not a database"):
        opened(tmp_path)


def test_a_file_of_a_later_version_is_left_alone(tmp_path: pathlib.Path) -> None:
    opened(tmp_path).close()
    with sqlite3.connect(tmp_path / "jobs.sqlite") as database:
        database.execute("PRAGMA user_version = 2")
    database.close()
    with pytest.raises(HaversackError, match="version 2"):
        opened(tmp_path)


def test_what_cannot_be_written_is_counted_and_told(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    faults = Faults()
    store = Store(tmp_path, on_fault=faults)
    with sqlite3.connect(tmp_path / "jobs.sqlite") as database:
        database.execute("DROP TABLE job")
    database.close()
    row = Row(job_id="a", request=REQUEST, state=JobState.QUEUED, submitted_unix_ns=1)
    store.put(row).result()
    assert faults.count == 1
    assert "reports are not kept" in caplog.text
    store.close()


def test_a_folder_that_is_gone_is_counted_and_told(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    faults = Faults()
    store = Store(tmp_path / "state", on_fault=faults)
    shutil.rmtree(tmp_path / "state")
    store.put(Row(job_id="a", request=REQUEST, state=JobState.QUEUED, submitted_unix_ns=1)).result()
    assert faults.count == 1
    assert "reports are not kept" in caplog.text
    store.close()


async def test_a_file_with_a_broken_page_is_refused_by_name_and_let_go(
    tmp_path: pathlib.Path,
) -> None:
    store = opened(tmp_path)
    for number in range(99):
        store.put(
            Row(
                job_id=f"job-{number}",
                request=REQUEST,
                state=JobState.QUEUED,
                submitted_unix_ns=number,
            )
        )
    store.close()
    file = tmp_path / "jobs.sqlite"
    pages = file.read_bytes()
    file.write_bytes(pages[:8192] + bytes([255]) * (len(pages) - 8192))
    broken = opened(tmp_path)
    with pytest.raises(HaversackError, match=r"cannot keep reports in .*malformed"):
        async with JobRunner(store=broken):
            pytest.fail("it knows nothing of what was kept")
    opened(tmp_path).close()  # the lock is free again


@pytest.mark.parametrize(
    "row",
    [
        "'bad', '{\"later\": 1}', 1, 1, NULL, NULL",
        "'bad', '[]', 1, 1, NULL, NULL",
        "'bad', CAST(x'ff' AS TEXT), 1, 1, NULL, NULL",
        '\'bad\', \'{"workload": {"name": "mlp"}}\', 99, 1, NULL, NULL',
        "'bad', '{\"workload\": {\"name\": \"mlp\"}}', 1, 'now', NULL, NULL",
    ],
)
def test_a_row_that_cannot_be_read_is_left_out_and_told(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, row: str
) -> None:
    store = opened(tmp_path)
    store.put(Row(job_id="good", request=REQUEST, state=JobState.QUEUED, submitted_unix_ns=1))
    with sqlite3.connect(tmp_path / "jobs.sqlite") as database:
        database.execute(f"INSERT INTO job VALUES ({row})")
    database.close()
    assert [row.job_id for row in store.rows()] == ["good"]
    assert "job bad cannot be read" in caplog.text
    store.close()


def test_the_file_is_for_its_owner_only(tmp_path: pathlib.Path) -> None:
    opened(tmp_path / "state").close()
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0
    assert (tmp_path / "state" / "jobs.sqlite").stat().st_mode & 0o077 == 0
