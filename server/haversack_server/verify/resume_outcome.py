"""What one rank of a resume job leaves behind, as its process tells it to the job."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from haversack.verify import Facet
from haversack_server.verify.comparison import Row
from haversack_server.verify.outcome import Raised
from haversack_server.verify.resume_random import SourceRead


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeRank:
    """One rank of one run.

    ``rows`` compare it with the run that was not stopped, or with what was saved; those of a rank
    that saves, what it holds afterwards with what it held before. ``between_ranks`` are rows of the
    ranks that saved among each other. ``counts`` are of values that were compared, by the name of
    their facet.
    ``losses`` and ``draws`` are of the steps after the stop: the mean loss over all ranks, and
    whether random numbers were drawn. ``random`` is what became of generators on another number of
    ranks. ``left_out`` is whether the files held what this run was to
    leave out.
    """

    rank: int
    raised: Raised | None = None
    bad_workload: str = ""
    unreachable: str = ""
    ended_ns: int = 0
    rows: tuple[Row, ...] = ()
    between_ranks: tuple[Row, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    losses: tuple[float, ...] = ()
    draws: bool = False
    checkpoint_bytes: int = 0
    kept: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    left_out: bool = False
    random: tuple[SourceRead, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeRuns:
    """The runs of a resume job, each the outcomes of its ranks in their order.

    ``again`` is not stopped either, and has as many ranks as ``resumed``. ``without`` are resumed
    runs that left out a kind of state.
    """

    uninterrupted: tuple[ResumeRank, ...]
    again: tuple[ResumeRank, ...]
    saved: tuple[ResumeRank, ...]
    resumed: tuple[ResumeRank, ...]
    without: Mapping[Facet, tuple[ResumeRank, ...]] = field(default_factory=dict)


def first_raised(ranks: tuple[ResumeRank, ...]) -> ResumeRank | None:
    """Give the rank that raised first: the others may have missed it, and raised for that."""
    raised = [each for each in ranks if each.raised is not None]
    return min(raised, key=lambda each: each.ended_ns, default=None)
