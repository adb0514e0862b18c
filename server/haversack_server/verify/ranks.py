"""Puts the outcomes of ranks together: one run as a report has it, and what it says of ranks.

Names carry their rank, so that a difference on one is found and named. No torch, no processes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from haversack.parallelism import Sharding
from haversack.verify import (
    CollectiveCount,
    Facet,
    FacetResult,
    FacetSeverity,
    FacetValue,
    RandomSource,
    VerifyRank,
    VerifySharded,
    VerifyWorld,
)
from haversack_server.verify.comparison import Row, compare_values
from haversack_server.verify.findings import Outcomes
from haversack_server.verify.outcome import Outcome, RegionCount

_UNUSED = (
    "a parameter that a rank's forward does not use keeps the gradients of its bucket from being "
    "reduced; find_unused_parameters=True of DistributedDataParallel, which is off here as by "
    "default"
)
_AGAINST = (Facet.OUTPUTS, Facet.INPUT_GRADIENTS, Facet.PARAMETER_GRADIENTS)
_GATHERS = ("allgather", "all_gather")
_REDUCTIONS = ("reduce",)


@dataclass(frozen=True, kw_only=True, slots=True)
class RankOutcome:
    """What a rank saw of one run; ``unreachable`` says why it was none.

    ``files`` are those that all ranks left in their working folder, told by one of them.
    ``against`` compares a plain run with the one that is not sharded, ``against_counts`` says of
    how many values by the name of their facet. ``ended_ns`` is the machine's clock, for the order.
    """

    rank: int
    outcome: Outcome
    unreachable: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    against: tuple[Row, ...] = ()
    against_counts: Mapping[str, int] = field(default_factory=dict)
    collectives: Mapping[str, int] = field(default_factory=dict)
    parameter_bytes: int = 0
    ended_ns: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RankRuns:
    """The ranks of each run of a sharded job; those under probes are empty where one raised.

    ``traced`` is empty where no replay differs, ``planned`` where no step of a plan was measured.
    """

    plain: Sequence[RankOutcome]
    again: Sequence[RankOutcome]
    checkpointed: Sequence[RankOutcome]
    watched_plain: Sequence[RankOutcome] = ()
    watched: Sequence[RankOutcome] = ()
    traced: Sequence[RankOutcome] = ()
    planned: Sequence[RankOutcome] = ()

    def outcomes(self) -> Outcomes:
        """Give them as the runs of a report."""
        return Outcomes(
            plain=merged(self.plain),
            again=merged(self.again),
            checkpointed=merged(self.checkpointed),
            watched_plain=merged(self.watched_plain) if self.watched_plain else None,
            watched=merged(self.watched) if self.watched else None,
            traced=_traced(self.traced) if self.traced else None,
            planned=_fullest(self.planned) if self.planned else None,
        )


def merged(ranks: Sequence[RankOutcome]) -> Outcome:
    """Make one outcome of all ranks': worst of figures, names with their rank.

    Where ranks raised, the first of them is the cause: the others then miss it.
    """
    raised = [each for each in ranks if each.outcome.raised is not None]
    if raised:
        first = min(raised, key=lambda each: each.ended_ns)
        cause = first.outcome.raised
        assert cause is not None
        message = f"on rank {first.rank} of {len(ranks)}: {cause.message}"
        return replace(first.outcome, raised=replace(cause, message=message))
    outcomes = [each.outcome for each in ranks]
    return replace(
        outcomes[0],
        time_ns=max(each.time_ns for each in outcomes),
        tick_ns=max(each.tick_ns for each in outcomes),
        compared=_sums(each.compared for each in outcomes),
        rows=tuple(_row(each.rank, row) for each in ranks for row in each.outcome.rows),
        rng=_named(ranks, lambda outcome: outcome.rng),
        state={**_named(ranks, lambda outcome: outcome.state), **_files(ranks)},
        own_changes=_named(ranks, lambda outcome: outcome.own_changes),
        truncated=any(each.truncated for each in outcomes),
        regions=_regions(ranks),
        rewritten=tuple(sorted({name for each in outcomes for name in each.rewritten})),
        sources=_sources(outcomes),
        peak_bytes=_largest(each.peak_bytes for each in outcomes),
        retained_bytes=_largest(each.retained_bytes for each in outcomes),
        gradients_all_zero=all(each.gradients_all_zero for each in outcomes),
    )


def _traced(ranks: Sequence[RankOutcome]) -> Outcome:
    """Give the place of the first rank that has one, whether ranks raised or not."""
    found = next((each for each in ranks if each.outcome.first_difference is not None), ranks[0])
    place = found.outcome.first_difference
    if place is None:
        return found.outcome
    told = f"on rank {found.rank} of {len(ranks)}: {place.detail}"
    return replace(found.outcome, first_difference=replace(place, detail=told))


def _fullest(ranks: Sequence[RankOutcome]) -> Outcome:
    """Give the measured step of the rank that took the most; that of the first to raise, if any."""
    raised = [each for each in ranks if each.outcome.raised]
    if raised:
        return min(raised, key=lambda each: each.ended_ns).outcome
    return max(ranks, key=lambda each: _planned_bytes(each) or 0).outcome


def _planned_bytes(rank: RankOutcome) -> int | None:
    applied = rank.outcome.applied
    return applied.measured_peak_bytes if applied else None


def _row(rank: int, row: Row) -> Row:
    return replace(row, name=f"rank {rank} {row.name}")


def _sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            found[name] = found.get(name, 0) + count
    return found


def _named(
    ranks: Sequence[RankOutcome], states: Callable[[Outcome], Mapping[str, str]]
) -> dict[str, str]:
    return {
        f"rank {each.rank} {name}": value
        for each in ranks
        for name, value in states(each.outcome).items()
    }


def _files(ranks: Sequence[RankOutcome]) -> dict[str, str]:
    return {name: said for each in ranks for name, said in each.files.items()}


def _regions(ranks: Sequence[RankOutcome]) -> tuple[RegionCount, ...]:
    """Give the counts of one rank where all are alike, else those of each."""
    first = ranks[0].outcome.regions
    if all(each.outcome.regions == first for each in ranks):
        return first
    return tuple(
        replace(count, region=f"rank {each.rank} {count.region}")
        for each in ranks
        for count in each.outcome.regions
    )


def _sources(outcomes: Sequence[Outcome]) -> tuple[RandomSource, ...]:
    found: dict[str, RandomSource] = {}
    for source in (source for outcome in outcomes for source in outcome.sources):
        other = found.get(source.source, source)
        found[source.source] = RandomSource(
            source=source.source,
            drawn_in_forward=source.drawn_in_forward or other.drawn_in_forward,
            drawn_in_replay=source.drawn_in_replay or other.drawn_in_replay,
            restored=source.restored and other.restored,
        )
    return tuple(found[name] for name in sorted(found))


def _largest(sizes: Iterable[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return max(known, default=None)


def sharded(
    runs: RankRuns, world: VerifyWorld, backend: str, units: Sequence[str]
) -> VerifySharded:
    """Say how the run was spread, and what each rank saw."""
    return VerifySharded(
        sharding=world.sharding or Sharding.REPLICATED,
        world_size=world.size,
        backend=backend,
        units=tuple(units),
        ranks=tuple(
            _rank(runs, place, f"cuda:{place}" if backend == "nccl" else "cpu")
            for place in range(len(runs.plain))
        ),
        against_unsharded=tuple(_against(runs, facet, world.sharding) for facet in _AGAINST),
    )


def _rank(runs: RankRuns, place: int, device: str) -> VerifyRank:
    plain = runs.watched_plain[place] if runs.watched_plain else None
    watched = runs.watched[place] if runs.watched else None
    is_measured = len(runs.planned) > place
    return VerifyRank(
        rank=place,
        device=device,
        parameter_bytes=runs.plain[place].parameter_bytes,
        plain_peak_bytes=(plain.outcome.peak_bytes or 0) if plain else 0,
        checkpointed_peak_bytes=(watched.outcome.peak_bytes or 0) if watched else 0,
        planned_peak_bytes=_planned_bytes(runs.planned[place]) if is_measured else None,
        collectives=_collectives(
            plain.collectives if plain else {}, watched.collectives if watched else {}
        ),
    )


def _collectives(
    plain: Mapping[str, int], checkpointed: Mapping[str, int]
) -> tuple[CollectiveCount, ...]:
    return tuple(
        CollectiveCount(
            operation=name,
            kind=_kind(name),
            plain_count=plain.get(name, 0),
            checkpointed_count=checkpointed.get(name, 0),
        )
        for name in sorted(plain.keys() | checkpointed.keys())
    )


def _kind(operation: str) -> str:
    if any(word in operation for word in _GATHERS):
        return "gather"
    return "reduction" if any(word in operation for word in _REDUCTIONS) else "other"


def _against(runs: RankRuns, facet: Facet, sharding: Sharding) -> FacetResult:
    ranks = runs.plain
    rows = [_row(each.rank, row) for each in ranks for row in each.against]
    compared = sum(each.against_counts.get(facet.name, 0) for each in ranks)
    if not any(each.against_counts for each in ranks):
        return FacetResult(
            facet=facet,
            value=FacetValue.NOT_CHECKED,
            severity=FacetSeverity.INFORMATION,
            detail="There is no run on one process to compare with",
        )
    found = compare_values(facet, compared, merged(runs.again).rows, rows)
    differs = found.value is FacetValue.DIFFERENT
    severity = FacetSeverity.WARNING if differs else FacetSeverity.INFORMATION
    # How to cure a replay does not cure a reduction.
    is_unreduced = differs and facet is Facet.PARAMETER_GRADIENTS and sharding is not Sharding.FSDP2
    return replace(found, severity=severity, fix_hint=_UNUSED if is_unreduced else "")
