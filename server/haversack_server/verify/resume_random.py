"""Random states on another number of ranks: which were given back, and which certainly were not.

N ranks' states are not M ranks', so no rank has one that it must have. But a generator whose state
is the very one that it had before the files were read was given nothing, and one whose state a rank
had when it saved was given that. Of what lies between nothing is said. No torch, no verdict.

A source is lost for certain only where all of this holds: its state after reading is that of
before, with which the same rank began the training; that rank drew from it before the stop, and no
rank saved this state; the rank draws from it afterwards, so that it draws again what it drew; and
it does not come to the state that it has without a stop, as it would if steps seed it anew. A rank
that did not save begins with numbers that nobody drew, and loses nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from haversack.verify import Facet, FacetResult, FacetValue
from haversack_server.verify.comparison import MOST_NAMES
from haversack_server.verify.resumable import Resume


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRead:
    """What one rank's generator held after reading, beside what it held before and what was saved.

    ``of_ranks`` are the ranks that saved just this state. ``drawn_before`` is of any rank that
    saved, ``drawn_after`` of this rank. ``begins_again`` says that this rank drew before the stop,
    and is where it began; ``ends_alike`` that the next steps lead where they lead without a stop.
    """

    source: str
    drawn_before: bool = False
    drawn_after: bool = False
    unchanged: bool = False
    begins_again: bool = False
    of_ranks: tuple[int, ...] = ()
    ends_alike: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether it was certainly given nothing, and needed it."""
        given_nothing = self.unchanged and self.begins_again and not self.of_ranks
        return given_nothing and self.drawn_after and not self.ends_alike

    @property
    def is_restored(self) -> bool:
        """Whether it was certainly given what a rank saved."""
        return self.drawn_before and bool(self.of_ranks) and not self.unchanged

    @property
    def is_undecided(self) -> bool:
        """Whether it was given something, and nobody knows of whom."""
        given_something = self.drawn_before and not self.unchanged and not self.of_ranks
        return given_something and not self.ends_alike


Read = tuple[int, SourceRead]  # the rank, and one of its sources


def random_finding(reads: Sequence[Read], resume: Resume) -> FacetResult:
    """Find the value of the facet RNG on another number of ranks."""
    lost = [each for each in reads if each[1].is_lost]
    undecided = [each for each in reads if each[1].is_undecided]
    restored = [each for each in reads if each[1].is_restored]
    where = f"{resume.resumed_size} ranks in place of {resume.saved_size} go on"
    if lost:
        detail = (
            f"{_listed(lost)}: as before the files were read, and no rank saved that, so that "
            "what was drawn before the stop is drawn again"
        )
        return _result(FacetValue.DIFFERENT, f"{where}. Left out: {detail}", lost, reads)
    if undecided:
        detail = f"{_listed(undecided)} are neither as before nor as a rank saved them"
        return _result(FacetValue.INCONCLUSIVE, f"{where}. {detail}", undecided, reads)
    if restored:
        detail = "; ".join(_whose(restored))
        return _result(FacetValue.EQUAL_BITWISE, f"{where}. {detail}", [], restored)
    return _result(FacetValue.NOT_CHECKED, f"{where}; {_unsaid(reads)}", [], [])


def _unsaid(reads: Sequence[Read]) -> str:
    if not any(read.drawn_before for _, read in reads):
        return "no step before the stop draws random numbers, so nothing can be lost or found"
    return (
        "whether random states were given back cannot be told: they are as before the files were "
        "read, and as saved, or no step needs them"
    )


def _result(
    value: FacetValue, detail: str, different: Sequence[Read], compared: Sequence[Read]
) -> FacetResult:
    return FacetResult(
        facet=Facet.RNG,
        value=value,
        detail=detail,
        names=tuple(map(_named, different))[:MOST_NAMES],
        compared_count=len(compared),
        different_count=len(different),
    )


def _named(each: Read) -> str:
    rank, read = each
    return f"rank {rank} {read.source}"


def _listed(reads: Sequence[Read]) -> str:
    more = f" and {len(reads) - 3} more" if len(reads) > 3 else ""
    return ", ".join(map(_named, reads[:3])) + more


def _whose(restored: Sequence[Read]) -> Iterator[str]:
    """Say whose state ranks go on with; those with the same one draw the same numbers."""
    for source in dict.fromkeys(read.source for _, read in restored):
        owners: dict[int, list[str]] = {}
        for rank, read in restored:
            if read.source == source:
                owners.setdefault(read.of_ranks[0], []).append(str(rank))
        yield f"{source}: {', '.join(_held(ranks, saved) for saved, ranks in owners.items())}"


def _held(ranks: Sequence[str], saved: int) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} has that of rank {saved}"
    return f"ranks {' and '.join(ranks)} have that of rank {saved} and draw the same numbers"
