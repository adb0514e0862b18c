"""The mutation test: ten kinds of bug put into twenty models of the library, one at a time.

Caught is a bug whose report says DIFFERENT; module and region are right if the first difference is
in those that have the bug.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import mutants
from tests.bench.table import Row, at_least

from haversack.run import WorkloadReference
from haversack.verify import VerifyReport, VerifyRequest, VerifySchedule, VerifyVerdict
from haversack_server.execution import JobLimits
from haversack_server.jobs import JobRunner

ROOT = Path(__file__).parents[2]
LIMITS = JobLimits(deadline_ns=600 * 10**9, cpu_jobs=2)
# What a second forward overwrites shows only where there is one before the first backward.
SCHEDULES = {"stale-mask": VerifySchedule.TWO_MICROBATCHES}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug in a model, with the report that it got."""

    model: str
    bug: str
    target: mutants.Target
    report: VerifyReport

    @property
    def is_caught(self) -> bool:
        """Whether the report says that the run differs."""
        return self.report.verdict is VerifyVerdict.DIFFERENT

    @property
    def has_right_module(self) -> bool:
        """Whether the first difference is in the module that has the bug."""
        found = self.report.first_difference
        return found is not None and found.module == self.target.module

    @property
    def has_right_region(self) -> bool:
        """Whether the first difference is in the region that has the module, of several."""
        found = self.report.first_difference
        return found is not None and found.region == self.target.region


def mutation(text: str) -> Iterator[Row]:
    """Run every bug in every model whose name has a text."""
    models = [name for name in mutants.MODELS if text in name]
    found = asyncio.run(_reports([(model, bug) for model in models for bug in mutants.BUGS]))
    targets = {model: mutants.target(model) for model in models}
    checked = [Mutant(model, bug, targets[model], report) for model, bug, report in found]
    for each in checked:
        if not (each.is_caught and each.has_right_module and each.has_right_region):
            report = each.report
            print(f"{each.model} {each.bug}: {report.verdict.name} {report.first_difference}")
    yield _share("bugs caught", [each.is_caught for each in checked], 99)
    yield _share("module of the bug named", [each.has_right_module for each in checked], 95)
    yield _share("region of the bug named", [each.has_right_region for each in checked], 95)
    for bug in mutants.BUGS:
        own = [each for each in checked if each.bug == bug]
        caught, named = sum(e.is_caught for e in own), sum(e.has_right_module for e in own)
        yield Row("mutation", f"{bug}: caught, of {len(own)}; module named in {named}", caught, "")


async def _reports(wanted: Sequence[tuple[str, str]]) -> list[tuple[str, str, VerifyReport]]:
    allowed = ("tests.bench.",)
    async with JobRunner(limits=LIMITS, allow=allowed, path=(str(ROOT),)) as runner:
        free = asyncio.Semaphore(LIMITS.cpu_jobs)

        async def report(model: str, bug: str) -> tuple[str, str, VerifyReport]:
            async with free:
                found = await _report(runner, model, bug)
            return model, bug, found

        # A model of the library has the zygote load what every job would load by itself.
        await _last(runner, VerifyRequest(workload=WorkloadReference(name=mutants.MODELS[0])))
        return await asyncio.gather(*(report(model, bug) for model, bug in wanted))


async def _report(runner: JobRunner, model: str, bug: str) -> VerifyReport:
    named = WorkloadReference(
        entry_point=f"{mutants.__name__}:build", args_json=json.dumps({"model": model, "bug": bug})
    )
    schedule = SCHEDULES.get(bug, VerifySchedule.UNSPECIFIED)
    return await _last(runner, VerifyRequest(workload=named, schedule=schedule))


async def _last(runner: JobRunner, request: VerifyRequest) -> VerifyReport:
    report = [event.report async for event in runner.submit(request).events()][-1]
    assert report is not None
    return report


def _share(what: str, right: Sequence[bool], gate: float) -> Row:
    share = 100 * sum(right) / len(right) if right else 100.0
    return at_least("mutation", f"{what}, {sum(right)} of {len(right)}", share, gate, "%")
