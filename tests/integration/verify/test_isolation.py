"""Jobs that reach for what is not theirs: a typed failure, and the next job runs."""

import asyncio
import pathlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.verify.conftest import LIMITS, PACKAGES, report_of

from haversack.run import WorkloadReference
from haversack.verify import FailureReason, VerifyRequest, VerifyVerdict
from haversack_server.jobs import JobRunner

pytestmark = pytest.mark.asyncio(loop_scope="session")
Verify = Callable[..., Awaitable[Any]]
RAISED, BAD, LOST = (
    FailureReason.WORKLOAD_RAISED,
    FailureReason.BAD_WORKLOAD,
    FailureReason.WORKER_LOST,
)
WRITTEN = pathlib.Path(__file__).parent / "packages" / "jobworkloads" / "written"


async def needs(verify: Verify, *words: str) -> None:
    """Skip where the kernel of the job does not have what its report speaks of."""
    said = "\n".join((await verify("mlp")).environment.isolation)
    for word in words:
        if word not in said:
            pytest.skip(f"no report here says {word!r}")


@pytest.mark.parametrize(
    ("harm", "needed", "words"),
    [
        ("writes_outside", "Landlock, version", "PermissionError"),
        ("starts_a_program", "Landlock, version", "PermissionError"),
        ("speaks_to_the_network", "User, network, process", "Network is unreachable"),
    ],
)
async def test_what_is_refused_is_the_workloads_own_exception(
    verify: Verify, harm: str, needed: str, words: str
) -> None:
    await needs(verify, needed)
    built = await verify(case=f"hostile:{harm}")
    ran = await verify(case="hostile:in_forward", args_json=f'{{"harm": "{harm}"}}')
    assert (built.failure.reason, ran.failure.reason) == (BAD, RAISED)
    assert words in built.failure.message
    assert ("in its working folder alone" in built.failure.message) is ("Permission" in words)
    assert words in ran.failure.message
    assert not WRITTEN.exists()
    assert (await verify("mlp")).verdict is VerifyVerdict.EQUIVALENT


@pytest.mark.slow  # hundreds of copies of a process that holds torch
async def test_a_fork_bomb_ends_with_its_job(verify: Verify) -> None:
    await needs(verify, "processes and threads")
    report = await verify(case="hostile:forks_without_end")
    # Whichever of its processes speaks first; all of them do at once.
    assert report.failure.reason in (BAD, LOST)
    assert (await verify("mlp")).verdict is VerifyVerdict.EQUIVALENT


async def test_a_failed_job_tells_where_it_ran_and_what_held_it(verify: Verify) -> None:
    report = await verify(case="hostile:killed")
    assert report.failure.reason is LOST
    assert report.environment.torch
    assert report.environment.device == "cpu"
    assert report.environment.isolation[-1].startswith("Not contained: reading files")


@pytest.mark.slow  # a server of its own
async def test_a_job_that_fills_the_disk_is_killed_and_leaves_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    limits = replace(LIMITS, disk_bytes=4 * 2**20)
    async with JobRunner(("jobworkloads.",), (str(PACKAGES),), limits=limits) as runner:
        entry = "jobworkloads.hostile:fills_its_folder"
        filling = WorkloadReference(entry_point=entry, args_json='{"mebibytes": 8}')
        report = await report_of(runner, VerifyRequest(workload=filling))
        assert report.failure is not None
        assert report.failure.reason is FailureReason.OUT_OF_DISK
        assert "more than the 4.00 MiB that a job may have" in report.failure.message
        assert not await asyncio.to_thread(lambda: [*tmp_path.rglob("filling-*")])
        mlp = VerifyRequest(workload=WorkloadReference(name="mlp"))
        assert (await report_of(runner, mlp)).verdict is VerifyVerdict.EQUIVALENT
