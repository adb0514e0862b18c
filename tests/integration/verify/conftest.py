"""One runner, and so one zygote, for all tests of this folder that do not harm it."""

import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from haversack.run import WorkloadReference
from haversack.verify import VerifyReport, VerifyRequest
from haversack_server.execution import JobLimits
from haversack_server.jobs import JobRunner

pytest.importorskip("torch", reason="jobs need the extra torch")

PACKAGES = pathlib.Path(__file__).parent / "packages"
LIMITS = JobLimits(deadline_ns=120 * 10**9)
Verify = Callable[..., Awaitable[VerifyReport]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def runner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[JobRunner]:
    """Run jobs that may import what lies in ``packages``, and read weights of any test."""
    weights = (str(tmp_path_factory.getbasetemp()),)
    async with JobRunner(
        ("jobworkloads.",), (str(PACKAGES),), weights_dirs=weights, limits=LIMITS
    ) as runner:
        yield runner


@pytest.fixture
def verify(runner: JobRunner) -> Verify:
    """Run a workload by its name, or by the name of its factory, and give the report."""

    async def run(workload: str = "", *, case: str = "", **fields: Any) -> VerifyReport:
        entry_point = f"jobworkloads.{case}" if ":" in case else f"jobworkloads.cases:{case}"
        named = WorkloadReference(
            name=workload,
            entry_point=entry_point if case else "",
            args_json=fields.pop("args_json", ""),
        )
        return await report_of(runner, VerifyRequest(workload=named, **fields))

    return run


async def report_of(runner: JobRunner, request: VerifyRequest) -> VerifyReport:
    """Run a request to its end."""
    events = [event async for event in runner.submit(request).events()]
    report = events[-1].report
    assert report is not None
    return report
