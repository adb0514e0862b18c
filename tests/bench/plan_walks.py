"""Plans for profiles of up to 8 blocks, against every plan there is, walked moment by moment.

The walk adds up what is live by the profile alone and shares nothing with the planner but the
names of nests; ``plan_optimality`` has longer chains, with the planner's own pieces.
"""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.bench.table import Row, at_least, at_most
from tests.unit.plan.segment_walks import plans_at_length
from tests.unit.plan.test_profiled import planned

from haversack.plan import PlanStatus
from haversack.profile import OptionTable, Profile, ProfileBlock

SECTION = "optimality"
CHAINS = {6: 30, 7: 30, 8: 40}
"""How many chains are drawn of each length."""
BUDGETS = 6


class Count(NamedTuple):
    """What one chain showed."""

    plans: int
    answers: int
    wrong: int
    by_segments: int
    by_nests: int


def drawn(draw: random.Random, blocks: int) -> Profile:
    """Draw a profile in which segments, and segments in them, are often worth their time."""

    def size() -> int:
        return draw.randint(0, 40)

    def block(place: int) -> ProfileBlock:
        names = ("segment_bytes", "segment_peak_bytes", "forward_ns")
        may = draw.random() < 0.95
        inside: dict[str, Any] = {name: size() for name in names} if may else {}
        return ProfileBlock(
            name=f"layers.{place}", table=place, gradient_bytes=draw.randint(0, 8), **inside
        )

    def table() -> OptionTable:
        saved, again, policy = 60 + size(), 10 + size(), 35 + size()
        return OptionTable(
            option=("save", "recompute", "selective aten.mm.default:0"),
            retained_bytes=(saved, again, policy),
            forward_peak_bytes=(saved + size(), again + size(), policy + size()),
            backward_peak_bytes=(saved + size(), saved + size(), saved + size()),
            extra_ns=(0, 10 + size(), 5 + size()),
        )

    return Profile(
        blocks=tuple(map(block, range(blocks))),
        tables=tuple(table() for _ in range(blocks)),
        held_by_caller_bytes=size(),
    )


def counted(profile: Profile) -> Count:
    """Hold floor and extra time against all plans, at budgets from the floor to saving all."""
    plans = list(plans_at_length(profile))
    floor = min(peak for peak, _ in plans)
    below = planned(floor - 1, profile)
    wrong = int(below.status is not PlanStatus.INFEASIBLE) + int(below.floor_bytes != floor)
    free = min(peak for peak, extra in plans if extra == 0)
    answers = [
        planned(floor + step * (free - floor) // BUDGETS, profile) for step in range(BUDGETS)
    ]
    for step, answer in enumerate(answers):
        budget = floor + step * (free - floor) // BUDGETS
        wrong += answer.extra_ns != min(extra for peak, extra in plans if peak <= budget)
        wrong += answer.status is not PlanStatus.OPTIMAL
    return Count(
        plans=len(plans),
        answers=len(answers) + 1,
        wrong=wrong,
        by_segments=sum(any(each.segment for each in one.actions) for one in answers),
        by_nests=sum(any(each.inner_segments for each in one.actions) for one in answers),
    )


def rows() -> Iterator[Row]:
    """Say of each length what all chains showed."""
    draw = random.Random(8)
    for blocks, chains in CHAINS.items():
        found = [counted(drawn(draw, blocks)) for _ in range(chains)]
        total = Count(*map(sum, zip(*found, strict=True)))
        what = f"{blocks} blocks, {chains} chains"
        yield Row(SECTION, f"{what}: plans walked moment by moment", total.plans, "plans")
        said = f"{what}: floor, least extra, OPTIMAL, of {total.answers} answers"
        yield at_most(SECTION, said, total.wrong, 0, "wrong")
        yield at_least(SECTION, f"{what}: answered by segments", total.by_segments, 1, "answers")
        yield Row(SECTION, f"{what}: by segments in segments", total.by_nests, "answers")
