"""What reports say of a job's confinement, against what the kernel says inside the job."""

import json
import pathlib
import resource
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from haversack.verify import VerifyLimits

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(
        not pathlib.Path("/proc/self/status").exists(), reason="needs Linux's /proc"
    ),
]
Verify = Callable[..., Awaitable[Any]]
CASE = "confined:tells_what_it_may"
READ_WHAT_OTHERS_OWN = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def told(report: Any) -> dict[str, Any]:
    """What the workload raised."""
    _, _, said = report.failure.message.partition("raised ValueError: ")
    found, _ = json.JSONDecoder().raw_decode(said)
    assert isinstance(found, dict)
    return found


def at_most(which: int, value: int) -> list[int]:
    """Both limits of a job: no higher than what this machine gives the tests, and so the job."""
    _, hard = resource.getrlimit(which)
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return [allowed, allowed]


async def test_no_program_of_a_job_gains_privileges(verify: Verify) -> None:
    report = await verify(case=CASE)
    assert "No new privileges" in report.environment.isolation
    assert told(report)["no_new_privileges"] == 1


async def test_a_job_has_no_capability_but_what_its_report_says(verify: Verify) -> None:
    report = await verify(case=CASE)
    (said,) = [each for each in report.environment.isolation if each.startswith("No capabilities")]
    kept = READ_WHAT_OTHERS_OWN if said.endswith("but root's to read what others own") else 0
    capabilities = told(report)["capabilities"]
    assert {kind: has & ~kept for kind, has in capabilities.items()} == dict.fromkeys(
        capabilities, 0
    )
    assert capabilities["Inh"] == 0


async def test_a_job_has_its_limits_of_time_and_files(verify: Verify) -> None:
    report = await verify(case=CASE, threads=2, limits=VerifyLimits(deadline_ns=100 * 10**9))
    limits = told(report)["limits"]
    # The time of both threads, and what starting and ending take.
    assert limits["processor"] == at_most(resource.RLIMIT_CPU, 2 * 100 + 30)
    assert limits["file"] == at_most(resource.RLIMIT_FSIZE, 2**34)
    assert limits["core"] == [0, 0]
