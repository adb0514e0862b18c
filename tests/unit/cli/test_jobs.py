"""`haversack jobs`, `haversack verify --detach`, and the files that reports are written to."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from haversack.verify import (
    FailureReason,
    JobState,
    VerifyEvent,
    VerifyQueued,
    VerifyReport,
    VerifyVerdict,
)
from haversack.verify_jobs import VerifyJob

Run = Callable[..., Any]
SERVER = ("--server", "localhost:1")
REPORT = VerifyReport(job_id="b", workload="mlp", verdict=VerifyVerdict.DIFFERENT)
RUNNING = VerifyJob(
    job_id="a", workload="mlp", device="cpu", state=JobState.RUNNING, submitted_unix_ns=10**18
)
OVER = VerifyJob(
    job_id="b",
    workload="mlp",
    args_json='{"layers": 2}',
    state=JobState.FINISHED,
    verdict=VerifyVerdict.DIFFERENT,
    submitted_unix_ns=10**18,
    ended_unix_ns=10**18 + 1_500_000_000,
    report=REPORT,
)


def test_jobs_are_listed(client: Any, haversack_run: Run) -> None:
    client.jobs = [RUNNING, OVER]
    done = haversack_run("jobs", *SERVER, "--state", "running", "--state", "lost", "--limit", "2")
    assert done.code == 0
    assert client.keywords == {"states": ("running", "lost"), "page_size": 2}
    lines = done.out.splitlines()
    assert "running" in lines[1]
    assert "09-09 01:46" in lines[1]
    assert "different" in lines[2]
    assert "there are more" in done.err
    assert [each["job_id"] for each in haversack_run("jobs", *SERVER, "--json").json["jobs"]] == [
        "a", "b",
    ]  # fmt: skip


def test_a_page_breaks_no_word_of_a_job_and_a_wide_one_tells_more(
    client: Any, haversack_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.jobs = [replace(OVER, job_id="f" * 32, workload="conv-batchnorm", args_json="")]
    (row, *_) = haversack_run("jobs", *SERVER).out.splitlines()[1:]
    assert row.split() == ["f" * 32, "different", "conv-batchnorm", "09-09", "01:46"]
    monkeypatch.setenv("COLUMNS", "120")
    out = haversack_run("jobs", *SERVER).out
    assert "2001-09-09 01:46  1.50 s" in out
    assert "conv-batchnorm" in out


def test_no_jobs_are_said_to_be_none(client: Any, haversack_run: Run) -> None:
    assert haversack_run("jobs", *SERVER).out == "no jobs\n"


def test_a_failed_job_tells_why(client: Any, haversack_run: Run) -> None:
    client.jobs = [
        VerifyJob(
            job_id="c",
            state=JobState.FINISHED,
            verdict=VerifyVerdict.FAILED,
            failure_reason=FailureReason.WORKER_LOST,
        )
    ]
    out = haversack_run("jobs", *SERVER).out
    assert "failed, worker" in out  # and below it, where the page is narrow
    assert "lost" in out


@pytest.mark.parametrize(("job", "code"), [(OVER, 4), (RUNNING, 5)])
def test_one_job_is_shown_and_its_exit_code_is_its_verdict(
    client: Any, haversack_run: Run, job: VerifyJob, code: int
) -> None:
    client.jobs = [job]
    done = haversack_run("jobs", job.job_id, *SERVER)
    assert done.code == code
    assert ("DIFFERENT" in done.out) == (job is OVER)
    assert haversack_run("jobs", job.job_id, *SERVER, "--json").json["job_id"] == job.job_id


def test_a_job_is_cancelled_by_its_id(client: Any, haversack_run: Run) -> None:
    client.jobs = [RUNNING]
    haversack_run("jobs", "a", "--cancel", *SERVER)
    assert client.cancelled == ["a"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("jobs",), ("server", "--server")),
        (("jobs", "--cancel", *SERVER), ("job_id", "haversack jobs ID")),
        (("jobs", "--junit", "x.xml", *SERVER), ("job_id",)),
        (("verify", "--workload", "mlp", "--detach"), ("server", "inside this process")),
        (
            ("verify", "--workload", "mlp", "--detach", "--junit", "x.xml", *SERVER),
            ("junit", "haversack jobs ID"),
        ),
        (("verify", "--workload", "mlp", "--junit", "/"), ("junit", "cannot be written")),
        (("verify", "--workload", "mlp", "--json-file", "/no/where"), ("json_file", "/no/where")),
    ],
)
def test_what_cannot_be_is_refused(
    client: Any, haversack_run: Run, line: tuple[str, ...], words: tuple[str, ...]
) -> None:
    done = haversack_run(*line)
    assert done.code == 2
    assert all(word in done.err for word in words)
    assert client.asked == []


def test_an_id_that_is_missing_is_no_fault_of_an_option(client: Any, haversack_run: Run) -> None:
    assert "--cancel" not in haversack_run("jobs", "--junit", "x.xml", *SERVER).err


def test_a_detached_job_is_left_with_its_server(client: Any, haversack_run: Run) -> None:
    client.events = [VerifyEvent(job_id="a", queued=VerifyQueued(device="cpu"))]
    client.events += [AssertionError("it is not followed")]
    client.jobs = [RUNNING]
    done = haversack_run("verify", "--workload", "mlp", "--detach", *SERVER, "--json")
    assert done.code == 0
    assert done.json["state"] == "JOB_STATE_RUNNING"
    request, job_id = client.asked
    assert request.keep_after_disconnect
    assert job_id == "a"


@pytest.mark.parametrize("line", [("verify", "--workload", "mlp"), ("jobs", "b", *SERVER)])
def test_a_report_is_written_to_files_too(
    client: Any, haversack_run: Run, tmp_path: Path, line: tuple[str, ...]
) -> None:
    client.reports(REPORT)
    client.jobs = [OVER]
    junit, text = tmp_path / "report.xml", tmp_path / "report.json"
    done = haversack_run(*line, "--junit", str(junit), "--json-file", str(text))
    assert done.code == 4
    assert '"verdict": "VERIFY_VERDICT_DIFFERENT"' in text.read_text()
    assert ET.fromstring(junit.read_text()).get("failures") == "1"
