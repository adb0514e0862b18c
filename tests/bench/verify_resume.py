"""Training that is stopped and gone on with: pairs of ranks, forms of files, every kind forgotten.

    python -m tests.bench.verify_resume

Each case of ``haversack_server/worker/zoo/resume.py`` is saved by 2 ranks and read by 2 and by 4,
and saved by 4 and read by 2, under fully_shard, as sharded and as full files. Verdict and the kinds
that differ must be those of the table; on another number of ranks, training that draws random
numbers must be left undecided, unless it was given none of the random states back. A minute and a
half on two quiet cores.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.bench import machine
from tests.bench.table import Row, at_least, at_most, shown

from haversack.parallelism import Sharding
from haversack.run import WorkloadReference
from haversack.verify import (
    Facet,
    FacetValue,
    TrainingCheckpoint,
    VerifyReport,
    VerifyRequest,
    VerifyResume,
    VerifyVerdict,
    VerifyWorld,
)
from haversack_server.execution import JobLimits
from haversack_server.jobs import JobRunner
from haversack_server.verify.cases import Case, cases

PAIRS = ((2, 2), (2, 4), (4, 2))
FORMS = (TrainingCheckpoint.SHARDED, TrainingCheckpoint.FULL)
LIMITS = JobLimits(deadline_ns=300 * 10**9, cpu_jobs=2)
# Their dropout draws on every rank, from states that ranks were given.
DRAW = ("resume-dropout", "resume-random-states-of-one-rank")
# On another number of ranks its steps differ by themselves: the states that it lost decide alone.
ONLY_RANDOM = {"resume-forgets-random-states": {Facet.RNG}}


@dataclass(frozen=True, slots=True)
class Stopped:
    """A case with the report of one pair and form."""

    case: Case
    same_ranks: bool
    report: VerifyReport

    @property
    def is_right(self) -> bool:
        """Whether verdict and different facets are the expected ones."""
        if self.report.failure is not None:
            return False
        return (self.report.verdict, self.different) == self._expected()

    @property
    def different(self) -> set[Facet]:
        """The facets that differ."""
        found = self.report.facets
        return {each.facet for each in found if each.value is FacetValue.DIFFERENT}

    @property
    def is_undecided(self) -> bool:
        """Whether nothing can be said: no seed repeats it, or each rank draws its own numbers."""
        draws = not self.same_ranks and self.case.name in DRAW
        return draws or self.case.verdict is VerifyVerdict.INCONCLUSIVE

    def _expected(self) -> tuple[VerifyVerdict, set[Facet]]:
        if self.is_undecided:
            return VerifyVerdict.INCONCLUSIVE, set()
        different = set(self.case.different)
        if not self.same_ranks:
            different = ONLY_RANDOM.get(self.case.name, different)
        return self.case.verdict, different


def resume(text: str) -> Iterator[Row]:
    """Hold every case whose name has a text against the table, for each pair and form."""
    chosen = [case for name, case in cases().items() if case.is_resumed and text in name]
    if not chosen:
        return
    for saved, resumed in PAIRS:
        for form in FORMS:
            reports = asyncio.run(_reports(chosen, saved, resumed, form))
            found = [
                Stopped(case, saved == resumed, report)
                for case, report in zip(chosen, reports, strict=True)
            ]
            yield from _rows(f"{saved} -> {resumed}, {form.name.lower()}", found)


def _rows(what: str, found: Sequence[Stopped]) -> Iterator[Row]:
    for each in found:
        if not each.is_right:
            told = each.report.failure or sorted(facet.name for facet in each.different)
            print(f"{what}: {each.case.name}: {each.report.verdict.name} {told}")
    undecided = [each for each in found if each.is_undecided]
    decided = [each for each in found if not each.is_undecided]
    lost = [each for each in decided if each.case.verdict is VerifyVerdict.DIFFERENT]
    kept = [each for each in decided if each.case.verdict is VerifyVerdict.EQUIVALENT]
    shares = {
        "forgotten kinds found and named": lost,
        "whole ones are equivalent": kept,
        "left undecided as they must be": undecided,
    }
    yield from (_share(f"{what}: {words}", own) for words, own in shares.items() if own)
    differences = [finding.max_difference or 0.0 for each in kept for finding in each.report.facets]
    if differences:
        limit = 0.0 if all(each.same_ranks for each in kept) else 1000.0
        largest = max(differences) * 1e9
        yield at_most("resume", f"{what}: largest difference of whole ones", largest, limit, "e-9")


def _share(what: str, found: Sequence[Stopped]) -> Row:
    right = sum(each.is_right for each in found)
    share = 100 * right / len(found)
    return at_least("resume", f"{what}, {right} of {len(found)}", share, 100, "%")


async def _reports(
    chosen: Sequence[Case], saved: int, resumed: int, form: TrainingCheckpoint
) -> list[VerifyReport]:
    async with JobRunner(limits=LIMITS) as runner:

        async def report(case: Case) -> VerifyReport:
            request = VerifyRequest(
                workload=WorkloadReference(name=case.name),
                world=VerifyWorld(size=saved, sharding=Sharding.FSDP2),
                resume=VerifyResume(size=resumed, saved_as=form),
            )
            found = [event.report async for event in runner.submit(request).events()][-1]
            assert found is not None
            return found

        return await asyncio.gather(*map(report, chosen))


if __name__ == "__main__":
    print(machine.heading(machine.describe()))
    shown(resume(""))
