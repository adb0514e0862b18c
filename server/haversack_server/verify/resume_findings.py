"""From the runs of a resume job to one finding per facet. No torch, no verdict.

The state that ranks hold after reading is held against what the ranks held that saved: copies, so
bit for bit on any number of ranks. The steps after it are held against the run that was not
stopped: bit for bit, then the noise of a second run that is not stopped either, on as many ranks as
went on, then the tolerance of the dtype. So what another number of ranks changes by itself (the
order of a sum; but also other random numbers) is never taken for a fault of the files.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from haversack.verify import Facet, FacetResult, FacetValue, LeftOutState
from haversack_server.verify.comparison import Row, compare_values
from haversack_server.verify.resumable import Resume
from haversack_server.verify.resume_hints import resume_hint
from haversack_server.verify.resume_outcome import ResumeRank, ResumeRuns, first_raised
from haversack_server.verify.resume_random import random_finding

RESUME_FACETS = (
    Facet.BUFFERS,
    Facet.RNG,
    Facet.PARAMETERS,
    Facet.OPTIMIZER_STATE,
    Facet.SCHEDULE,
    Facet.SAMPLER_POSITION,
    Facet.EXTRA_STATE,
    Facet.NEXT_STEPS,
)
# Gathered, and compared by rank 0 for all.
_WHOLE = (Facet.PARAMETERS, Facet.OPTIMIZER_STATE, Facet.NEXT_STEPS)


def resume_findings(runs: ResumeRuns, resume: Resume) -> list[FacetResult]:
    """Find the value of every facet of a resume job."""
    raised = first_raised(runs.resumed)
    if raised is not None:
        return list(_of_raised(raised, resume))
    found = [_finding(facet, runs, resume) for facet in RESUME_FACETS]
    is_lost = any(each.value is FacetValue.DIFFERENT for each in found[:-1])
    return [
        *(_with_hint(each, resume) for each in found[:-1]),
        _next_steps(found[-1], resume, is_lost),
    ]


def _next_steps(found: FacetResult, resume: Resume, is_lost: bool) -> FacetResult:
    """Let state that is lost for certain decide: what follows from it needs no cure of its own.

    Steps that do not repeat themselves take nothing from that.
    """
    if is_lost and found.value is FacetValue.INCONCLUSIVE:
        return replace(found, value=FacetValue.NOT_CHECKED)
    if is_lost and found.value is FacetValue.DIFFERENT:
        return replace(found, fix_hint="")
    return _with_hint(found, resume)


def left_out_states(runs: ResumeRuns, resume: Resume) -> Iterator[LeftOutState]:
    """Say what each kind changes that was left out; of a kind that files do not hold, nothing."""
    for facet, ranks in runs.without.items():
        if not any(each.left_out or each.raised for each in ranks):
            continue
        found = resume_findings(replace(runs, resumed=ranks), resume)
        values = {each.facet: each.value for each in found}
        yield LeftOutState(facet=facet, value=values[facet], next_steps=values[Facet.NEXT_STEPS])


def _of_raised(raised: ResumeRank, resume: Resume) -> Iterator[FacetResult]:
    for facet in RESUME_FACETS:
        if facet is Facet.NEXT_STEPS:
            assert raised.raised is not None
            detail = (
                f"Only the resumed run raised, in {raised.raised.part} on rank {raised.rank} of "
                f"{resume.resumed_size}: {raised.raised}"
            )
            yield FacetResult(facet=facet, value=FacetValue.RAISED_ONLY_RESUMED, detail=detail)
        else:
            yield _not_checked(facet, "The resumed run raised")


def _not_checked(facet: Facet, detail: str) -> FacetResult:
    return FacetResult(facet=facet, value=FacetValue.NOT_CHECKED, detail=detail)


def _finding(facet: Facet, runs: ResumeRuns, resume: Resume) -> FacetResult:
    if facet is Facet.RNG and not resume.same_ranks:
        return random_finding([(r.rank, each) for r in runs.resumed for each in r.random], resume)
    compared = sum(each.counts.get(facet.name, 0) for each in runs.resumed)
    noise = runs.again[0].rows if facet is Facet.NEXT_STEPS else _between(runs, facet)
    found = compare_values(facet, compared, noise, _rows(runs.resumed, facet))
    if found.value is FacetValue.WITHIN_NOISE:
        return replace(found, detail=_within_noise(found, resume))
    if found.value is FacetValue.INCONCLUSIVE:
        return replace(found, detail=_undecided(found, resume))
    return found


def _rows(ranks: Iterable[ResumeRank], facet: Facet) -> list[Row]:
    own = [(each.rank, row) for each in ranks for row in each.rows if row.facet is facet]
    return [row if facet in _WHOLE else _of_rank(rank, row) for rank, row in own]


def _between(runs: ResumeRuns, facet: Facet) -> list[Row]:
    """Where the ranks that saved differ among each other, no other number of ranks is right."""
    rows = [row for each in runs.resumed for row in each.between_ranks if row.facet is facet]
    return [_of_rank(each.rank, row) for each in runs.resumed for row in rows]


def _of_rank(rank: int, row: Row) -> Row:
    return replace(row, name=f"rank {rank} {row.name}")


def _within_noise(found: FacetResult, resume: Resume) -> str:
    how_many = f"{found.different_count} of {found.compared_count} values of the next steps differ"
    largest = f" by up to {found.max_difference:.2g}" if found.max_difference is not None else ""
    return (
        f"{how_many}{largest}, no more than {resume.resumed_size} ranks do from "
        f"{resume.saved_size} without a stop"
    )


def _undecided(found: FacetResult, resume: Resume) -> str:
    first = f", first {found.names[0]}" if found.names else ""
    if found.facet is not Facet.NEXT_STEPS:
        return f"The ranks that saved differ among each other{first}"
    if resume.same_ranks:
        return f"Two runs that were not stopped differ already{first}"
    return (
        f"Without a stop {resume.resumed_size} ranks already differ from {resume.saved_size}{first}"
    )


def _with_hint(found: FacetResult, resume: Resume) -> FacetResult:
    other_samples = any(name.endswith(" batch") for name in found.names)
    hint = resume_hint(
        found.facet, found.value, same_ranks=resume.same_ranks, other_samples=other_samples
    )
    return replace(found, fix_hint=hint)
