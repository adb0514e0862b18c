"""What stands beside a profile's plan: well-known ways to choose, and equal treatment."""

from collections.abc import Sequence
from math import isqrt

from haversack.plan import Baseline, Rung
from haversack.profile import Profile
from haversack_server.plan.baselines import baselines, ways_of
from haversack_server.plan.graph import Coupled
from haversack_server.plan.ladder import Found, Ladder
from haversack_server.plan.pieces import Piece, has_segments
from haversack_server.plan.profiled_actions import saved_count
from haversack_server.plan.profiled_peaks import peak_of
from haversack_server.plan.symmetric import MOST_CHOICES, Alike, EqualTreatment, choices_of

_EVERY = "equal treatment, every choice by class of blocks"


def baselines_of(ladder: Ladder, budget_bytes: int) -> tuple[Baseline, ...]:
    """Put each way beside the plan, with the options that the constraints leave."""
    options = ladder.chain.options

    def peak(chosen: tuple[int, ...]) -> int:
        return peak_of(ladder.chain, ladder.of_options(chosen))[0]

    ways = list(ways_of(options, peak, budget_bytes))
    found = baselines(options, peak, budget_bytes, ways)
    segments = square_root(ladder)
    if segments is None:
        return found
    peak_bytes = peak_of(ladder.chain, segments)[0]
    cut = Baseline(
        name="sqrt(n) segments",
        peak_bytes=peak_bytes,
        fits=peak_bytes <= budget_bytes,
        extra_ns=sum(piece.extra_ns for piece in segments),
        saved_count=saved_count(ladder.chain, segments),
    )
    return (*found, cut)


def square_root(ladder: Ladder) -> tuple[Piece, ...] | None:
    """Cut the chain into segments of about as many blocks as there are segments (Chen et al.).

    What cannot be in a segment is by its first option; None where nothing can.
    """
    if not ladder.cuts:
        return None
    open_blocks = sum(each is not None for each in ladder.chain.inside)
    length = max(2, isqrt(open_blocks))
    place, chosen = 0, []
    while place < len(ladder.pieces):
        segments = [each for each in ladder.pieces[place] if each.option is None]
        fitting = [each for each in segments if each.stop - each.first <= length]
        best = fitting[-1] if fitting else ladder.pieces[place][0]
        chosen.append(best)
        place = best.stop
    return tuple(chosen)


class EqualBlocks:
    """Plans that treat blocks with one table alike, unless a constraint sets one apart."""

    def __init__(self, profile: Profile, ladder: Ladder, work_ns: int | None) -> None:
        self._ladder = ladder
        options = ladder.chain.options
        classes = [
            (block.table, tuple(each.name for each in rows))
            for block, rows in zip(profile.blocks, options, strict=True)
        ]
        self._choices: EqualTreatment | Coupled
        if choices_of(classes, options) <= MOST_CHOICES:
            self._choices = EqualTreatment(classes, options, self._peak)
        else:
            self._choices = Coupled(classes, ladder, work_ns)

    def _peak(self, options: Sequence[int]) -> int:
        return peak_of(self._ladder.chain, self._ladder.of_options(options))[0]

    def assumed(self) -> tuple[str, ...]:
        """Say that these plans have no segments, where others may."""
        if not has_segments(self._ladder.chain):
            return ()
        return ("segments: none with equal treatment; the floor is the least peak without them",)

    def floor(self) -> tuple[int, tuple[Piece, ...]]:
        """Find the least peak, and the pieces of a plan that has it."""
        least = self._choices.floor()
        return least.peak_bytes, self._ladder.of_options(least.options)

    def solve(self, budget_bytes: int) -> Found:
        """Find the cheapest plan for a budget that is not below the floor."""
        return self._found(self._choices.solve(budget_bytes))

    def frontier(self, budgets: Sequence[int]) -> tuple[Found, ...]:
        """Find the cheapest plan for every budget."""
        return tuple(self.solve(budget_bytes) for budget_bytes in budgets)

    def _found(self, alike: Alike) -> Found:
        solved = isinstance(self._choices, Coupled)
        return Found(
            pieces=self._ladder.of_options(alike.options),
            extra_ns=alike.extra_ns,
            lower_bound=alike.lower_bound,
            rung=Rung.GRAPH if solved else Rung.CEILING,
            solver="equal treatment, CP-SAT" if solved else _EVERY,
        )
