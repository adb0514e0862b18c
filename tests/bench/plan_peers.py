"""Other ways to choose, executed: what they cost beside our plan at the peak that they really had.

A way is compared at its own executed peak. Our plan for that budget may be dearer than the way only
because its peak is predicted, so then our plan for the way's predicted peak counts too, if what it
was executed with is not above the way.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.bench.plan_cases import Subject, planned
from tests.bench.plan_rotor import schedule
from tests.bench.plan_runs import tracked_bytes
from tests.bench.table import Row, at_least

from haversack.plan import Plan
from haversack.torch import apply
from haversack_server.plan.baselines import ways_of
from haversack_server.plan.ladder import Ladder
from haversack_server.plan.pieces import Piece
from haversack_server.plan.profiled_actions import actions_of
from haversack_server.plan.profiled_beside import square_root
from haversack_server.plan.profiled_chain import chain_of, options_of
from haversack_server.plan.profiled_peaks import peak_of
from haversack_server.plan.solving import Solving

SHARES = (0.3, 0.5, 0.7)
SECTION = "peers"


@dataclass(frozen=True, slots=True)
class Way:
    """One way with its figures, executed; bytes have what stands in them."""

    name: str
    extra_ns: int
    predicted_bytes: int
    executed_bytes: int


def rows(subject: Subject) -> Iterator[Row]:
    """Compare every way with our plan at the peak that it was executed with."""
    ladder = ladder_of(subject)
    plain = subject.plain.tracked_bytes + subject.standing_bytes
    for name, pieces in _ways(ladder, [int(share * plain) for share in SHARES]):
        way = _executed(subject, ladder, name, pieces)
        if way.extra_ns:
            ours = _ours(subject, way)
            what = f"{subject.name}, {name} at {way.executed_bytes / plain:.0%}: its extra / ours"
            yield at_least(SECTION, what, way.extra_ns / max(1, ours), 1.0)


def ladder_of(subject: Subject) -> Ladder:
    """Make the ladder of a profile without optimizer states."""
    found = subject.profile
    chain = chain_of(found, options_of(found), moments_bytes=0, accumulation=1)
    return Ladder(chain, 4_000_000, Solving())


def _ways(ladder: Ladder, budgets: list[int]) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    def peak(options: tuple[int, ...]) -> int:
        return peak_of(ladder.chain, ladder.of_options(options))[0]

    for way in ways_of(ladder.chain.options, peak, budgets[0]):
        if way.name not in ("none", "greedy"):
            yield way.name, ladder.of_options(way.options)
    for share, budget_bytes in zip(SHARES, budgets, strict=True):
        greedy = list(ways_of(ladder.chain.options, peak, budget_bytes))[-1]
        if peak(greedy.options) <= budget_bytes:
            yield f"greedy for {share:.0%}", ladder.of_options(greedy.options)
    cut = square_root(ladder)
    if cut is not None:
        yield "sqrt(n) segments", cut
    for share, budget_bytes in zip(SHARES, budgets, strict=True):
        rotor = schedule(ladder, budget_bytes)
        if rotor is not None:
            yield f"rotor for {share:.0%}", rotor


def _executed(subject: Subject, ladder: Ladder, name: str, pieces: tuple[Piece, ...]) -> Way:
    actions = actions_of(subject.profile, ladder.chain, pieces)
    return Way(
        name=name,
        extra_ns=sum(piece.extra_ns for piece in pieces),
        predicted_bytes=peak_of(ladder.chain, pieces)[0],
        executed_bytes=_run(subject, Plan(actions=actions)),
    )


def _run(subject: Subject, answer: Plan) -> int:
    with apply(subject.model, answer):
        return tracked_bytes(subject.workload) + subject.standing_bytes


def _ours(subject: Subject, way: Way) -> int:
    """Give the least extra time of ours that was executed within the way's executed peak."""
    found = planned(subject.profile, way.executed_bytes)
    if found.actions and found.extra_ns <= way.extra_ns:
        return found.extra_ns
    again = planned(subject.profile, way.predicted_bytes)
    if _run(subject, again) <= way.executed_bytes:
        return again.extra_ns
    return found.extra_ns if found.actions else 2 * way.extra_ns
