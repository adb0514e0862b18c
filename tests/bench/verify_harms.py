"""Jobs that do harm: each ends with a failure of its type, and the next job runs.

Where the kernel has no Landlock or no namespaces, a job is not kept from some of it; that is then a
miss, as it should be.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.bench.table import Row, at_least

from haversack.run import WorkloadReference
from haversack.verify import (
    FailureReason,
    VerifyLimits,
    VerifyReport,
    VerifyRequest,
    VerifyVerdict,
)
from haversack_server.jobs import JobRunner

PACKAGES = Path(__file__).parents[1] / "integration" / "verify" / "packages"
LITTLE = VerifyLimits(memory_bytes=2**29)
SHORT = VerifyLimits(deadline_ns=10**9)
SOUND = VerifyRequest(workload=WorkloadReference(name="mlp"))
RAISED, BAD, LOST, MEMORY, DEADLINE = (
    FailureReason.WORKLOAD_RAISED,
    FailureReason.BAD_WORKLOAD,
    FailureReason.WORKER_LOST,
    FailureReason.OUT_OF_MEMORY,
    FailureReason.DEADLINE,
)
# Of a factory and, where there is a second one, of a forward; which process of a bomb speaks first
# is chance.
EXPECTED: Mapping[str, tuple[VerifyLimits, tuple[set[FailureReason], ...]]] = {
    "crashes": (VerifyLimits(), ({LOST}, {LOST})),
    "takes_memory": (LITTLE, ({MEMORY}, {MEMORY})),
    "endless": (SHORT, ({DEADLINE}, {DEADLINE})),
    "forks_without_end": (VerifyLimits(), ({BAD, LOST},)),
    "writes_outside": (VerifyLimits(), ({BAD}, {RAISED})),
    "speaks_to_the_network": (VerifyLimits(), ({BAD}, {RAISED})),
    "starts_a_program": (VerifyLimits(), ({BAD}, {RAISED})),
}


def harms() -> Iterator[Row]:
    """Run every harm, a sound job after each."""
    for name, right in asyncio.run(_all()).items():
        what = f"{name.replace('_', ' ')}: typed failures, then a sound job"
        yield at_least("harm", what, 100 * sum(right) / len(right), 100, "%")


async def _all() -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = {}
    async with JobRunner(("jobworkloads.",), (str(PACKAGES),)) as runner:
        for name, (limits, expected) in EXPECTED.items():
            requests = [_in_factory(name, limits), _in_forward(name, limits)][: len(expected)]
            found[name] = []
            for request, reasons in zip(requests, expected, strict=True):
                failure = (await _report(runner, request)).failure
                found[name].append(failure is not None and failure.reason in reasons)
                sound = await _report(runner, SOUND)
                found[name].append(sound.verdict is VerifyVerdict.EQUIVALENT)
    return found


def _in_factory(name: str, limits: VerifyLimits) -> VerifyRequest:
    reference = WorkloadReference(entry_point=f"jobworkloads.hostile:{name}")
    return VerifyRequest(workload=reference, limits=limits)


def _in_forward(name: str, limits: VerifyLimits) -> VerifyRequest:
    reference = WorkloadReference(
        entry_point="jobworkloads.hostile:in_forward", args_json=f'{{"harm": "{name}"}}'
    )
    return VerifyRequest(workload=reference, limits=limits)


async def _report(runner: JobRunner, request: VerifyRequest) -> VerifyReport:
    found = [event.report async for event in runner.submit(request).events()][-1]
    assert found is not None
    return found
