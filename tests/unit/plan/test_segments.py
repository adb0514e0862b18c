"""Segments in plans for profiles: exact against every way to cut, and never above the budget."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.plan.test_profiled import PROFILE, block, cost, every_choice, peak_by_hand, planned

from haversack.errors import InvalidRequestError, MissingExtraError
from haversack.plan import Plan, PlanConstraints, PlanStatus, Rung
from haversack.profile import OptionTable, Profile
from haversack_server.plan import profiled_beside, segment_search
from haversack_server.plan.ladder import Ladder
from haversack_server.plan.profiled_chain import chain_of, options_of
from haversack_server.plan.solving import Solving

SIZES = st.integers(0, 40)
Cut = tuple[tuple[int, int], ...]


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Up to 5 blocks of two kinds, most of which may be in a segment."""
    tables = []
    for _ in range(2):
        saved, again = 40 + draw(SIZES), draw(SIZES)
        tables.append(
            OptionTable(
                option=("save", "recompute"),
                retained_bytes=(saved, again),
                forward_peak_bytes=(saved + draw(SIZES), again + draw(SIZES)),
                backward_peak_bytes=(saved + draw(SIZES), saved + draw(SIZES)),
                extra_ns=(0, 1 + draw(SIZES)),
            )
        )
    blocks = []
    for place in range(draw(st.integers(1, 5))):
        made = block(f"layers.{place}", draw(st.integers(0, 1)))
        inside: dict[str, Any] = {}
        if draw(st.integers(0, 4)):
            names = ("segment_bytes", "segment_peak_bytes", "forward_ns")
            inside = {name: draw(SIZES) for name in names}
        blocks.append(replace(made, **inside))
    return Profile(blocks=tuple(blocks), tables=tuple(tables), held_by_caller_bytes=draw(SIZES))


def cuts(count: int) -> Iterator[Cut]:
    """Give every way to cut a chain: from where to where each piece goes."""
    if count == 0:
        yield ()
    for last in range(count):
        for before in cuts(last):
            yield (*before, (last, count))


def plans(profile: Profile) -> Iterator[tuple[int, int]]:
    """Walk through every plan moment by moment; give its peak and its extra time."""
    for cut in cuts(len(profile.blocks)):
        long = [piece for piece in cut if piece[1] - piece[0] > 1]
        members = [place for piece in long for place in range(*piece)]
        if any(profile.blocks[place].segment_bytes is None for place in members):
            continue
        for chosen in every_choice(profile):
            if all(chosen[place] == 1 for place in members):
                yield walked(profile, cut, chosen), time_of(profile, cut, chosen)


def time_of(profile: Profile, cut: Cut, chosen: tuple[int, ...]) -> int:
    extra = cost(profile, chosen)
    for first, stop in cut:
        for place in range(first, stop - 1):
            each = profile.blocks[place]
            extra += (each.forward_ns or 0) - profile.tables[each.table].extra_ns[1]
    return extra


def walked(profile: Profile, cut: Cut, chosen: tuple[int, ...]) -> int:
    rows = [profile.tables[each.table] for each in profile.blocks]
    standing = sum(each.parameter_bytes for each in profile.blocks)
    standing += profile.held_by_caller_bytes
    made = [*accumulate((each.gradient_bytes for each in reversed(profile.blocks)), initial=0)]
    later = list(reversed(made))[1:]  # gradients there when a block's backward begins
    moments, kept = [standing + made[-1]], 0
    for first, stop in cut:
        own = range(first, stop)
        if stop - first == 1:
            row = chosen[first]
            moments.append(standing + kept + rows[first].forward_peak_bytes[row])
            moments.append(standing + later[first] + kept + rows[first].backward_peak_bytes[row])
            kept += rows[first].retained_bytes[row]
            continue
        left, saved = 0, 0
        end = rows[stop - 1]
        kept_by_end = end.retained_bytes[0] - end.retained_bytes[1]
        waiting = max(0, end.backward_peak_bytes[1] - kept_by_end)
        for place in own:
            each = profile.blocks[place]
            peak = rows[place].forward_peak_bytes[1] if place == first else each.segment_peak_bytes
            moments.append(standing + kept + left + (peak or 0))
            again = waiting + rows[place].forward_peak_bytes[0]
            if place == stop - 1:
                again = end.backward_peak_bytes[1]
            moments.append(standing + later[stop - 1] + kept + saved + again)
            back = kept + saved + rows[place].backward_peak_bytes[0]
            moments.append(standing + later[place] + back)
            saved += rows[place].retained_bytes[0]
            left += (each.segment_bytes or 0) if place < stop - 1 else 0
        kept += left + rows[stop - 1].retained_bytes[1]
    return max(moments)


def cut_of(answer: Plan) -> Cut:
    places, start = [], 0
    for number, actions in groupby(answer.actions, key=lambda action: action.segment):
        count = len(list(actions))
        stops = [start + count] if number else range(start + 1, start + count + 1)
        for stop in stops:
            places.append((start, stop))
            start = stop
    return tuple(places)


@settings(max_examples=30, deadline=None)
@given(profile=profiles(), share=st.floats(0, 1))
def test_a_plan_with_segments_is_the_best_of_all(profile: Profile, share: float) -> None:
    every = list(plans(profile))
    floor = min(peak for peak, _ in every)
    budget = floor + int(share * (max(peak for peak, _ in every) - floor))
    answer = planned(budget, profile)
    assert answer.floor_bytes == floor
    assert answer.status is PlanStatus.OPTIMAL
    assert answer.extra_ns == min(extra for peak, extra in every if peak <= budget)
    chosen = tuple(int(action.option == "recompute") for action in answer.actions)
    assert answer.predicted_peak_bytes == walked(profile, cut_of(answer), chosen) <= budget
    assert answer.extra_ns == time_of(profile, cut_of(answer), chosen)
    below = planned(floor - 1, profile)
    assert below.status is PlanStatus.INFEASIBLE


WIDE = Profile(
    blocks=tuple(
        replace(
            block(f"layers.{place}", 0, "a"), segment_bytes=0, segment_peak_bytes=70, forward_ns=55
        )
        for place in range(6)
    ),
    tables=(
        OptionTable(
            option=("save", "recompute"),
            retained_bytes=(100, 60),
            forward_peak_bytes=(120, 60),
            backward_peak_bytes=(150, 160),
            extra_ns=(0, 50),
        ),
    ),
)
"""Blocks whose output is more than half of what they save."""


def test_a_segment_lowers_the_floor_where_outputs_are_large() -> None:
    floor = planned(1, WIDE).floor_bytes
    assert floor < min(peak_by_hand(WIDE, chosen) for chosen in every_choice(WIDE))
    answer = planned(floor, WIDE)
    assert answer.rung is Rung.SEGMENTS
    assert max(action.segment for action in answer.actions) > 1
    assert {a.option for a in answer.actions if a.segment} == {"recompute"}
    assert "segment" in answer.reason
    assert "sqrt(n) segments" in {each.name for each in answer.baselines}


def test_blocks_that_must_save_are_in_no_segment() -> None:
    free = planned(planned(1, WIDE).floor_bytes, WIDE)
    assert free.actions[2].segment
    held = PlanConstraints(must_save=("layers.2",))
    tight = planned(planned(1, WIDE, constraints=held).floor_bytes, WIDE, constraints=held)
    assert tight.actions[2].option == "save"
    assert tight.actions[2].segment == 0
    assert any(action.segment for action in tight.actions)


def test_lists_cut_short_give_a_plan_that_fits_with_its_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)

    def table() -> OptionTable:
        saved = int(random.integers(900, 1100))
        return OptionTable(
            option=("save", "recompute", "selective aten.mm.default:0"),
            retained_bytes=(saved, 100, 400),
            forward_peak_bytes=(saved + 50, 300, 500),
            backward_peak_bytes=(saved + 90,) * 3,
            extra_ns=(0, int(random.integers(900, 1100)), int(random.integers(300, 500))),
        )

    inside: dict[str, Any] = {"segment_bytes": 0, "segment_peak_bytes": 400, "forward_ns": 1000}
    blocks = tuple(replace(block(f"layers.{place}", place), **inside) for place in range(16))
    found = Profile(blocks=blocks, tables=tuple(table() for _ in blocks))
    exact = planned(7000, found)
    monkeypatch.setattr(segment_search, "MOST_WORK", 64 * 16**2)
    chain = chain_of(found, options_of(found), moments_bytes=0, accumulation=1)
    rough = Ladder(chain, 1, Solving()).solve(7000)
    assert exact.status is PlanStatus.OPTIMAL
    assert rough.lower_bound <= exact.extra_ns <= rough.extra_ns


def test_flags_of_a_profile_forbid_to_run_a_block_twice() -> None:
    flagged = replace(PROFILE.blocks[2], mutated_buffers=("running_mean",))
    found = replace(PROFILE, blocks=(*PROFILE.blocks[:2], flagged, *PROFILE.blocks[3:]))
    floor = planned(1, found).floor_bytes
    assert floor > planned(1).floor_bytes
    assert planned(floor, found).actions[2].option == "save"
    with pytest.raises(InvalidRequestError, match=r"change its buffers twice \(running_mean\)"):
        planned(10**6, found, constraints=PlanConstraints(must_recompute=("layers.1",)))


def test_equal_blocks_of_a_profile_are_treated_alike_at_a_price() -> None:
    alike = PlanConstraints(equal_treatment=True)
    spread = planned(1).floor_bytes + 60
    free, same = planned(spread), planned(spread, constraints=alike)
    options = {action.option for action in same.actions if action.fingerprint}
    assert len(options) == 1
    assert same.equal_treatment_ns == same.extra_ns - free.extra_ns > 0
    apart = PlanConstraints(equal_treatment=True, must_save=("layers.0",))
    chosen = planned(10**6, constraints=apart).actions
    assert chosen[2].option == chosen[3].option


def many_kinds(kinds: int) -> Profile:
    """Two blocks of each kind, every kind by its own table of four options."""
    random = np.random.default_rng(1)

    def table() -> OptionTable:
        retained = (100 + int(random.integers(40)), 10, 40, 70)
        return OptionTable(
            option=("save", "recompute", *(f"selective aten.mm.default:{n}" for n in range(2))),
            retained_bytes=retained,
            forward_peak_bytes=tuple(each + 20 for each in retained),
            backward_peak_bytes=(160,) * 4,
            extra_ns=(0, *(int(each) for each in random.integers(20, 90, 3))),
        )

    blocks = tuple(block(f"layers.{place}", place % kinds) for place in range(2 * kinds))
    return Profile(blocks=blocks, tables=tuple(table() for _ in range(kinds)))


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_a_solver_treats_blocks_alike_as_well_as_every_choice_does(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ortools", reason="the extra graph")
    alike, found = PlanConstraints(equal_treatment=True), many_kinds(4)
    tried = planned(1, found, constraints=alike)
    budget = tried.floor_bytes + int(share * 600)
    by_all = planned(budget, found, constraints=alike)
    monkeypatch.setattr(profiled_beside, "MOST_CHOICES", 1)
    solved = planned(budget, found, constraints=alike)
    assert by_all.rung is Rung.CEILING
    assert solved.rung is Rung.GRAPH
    assert solved.status is PlanStatus.OPTIMAL
    assert solved.extra_ns == by_all.extra_ns
    assert solved.floor_bytes == tried.floor_bytes
    assert solved.predicted_peak_bytes is not None
    assert solved.predicted_peak_bytes <= budget


def test_more_choices_than_are_tried_need_the_solver() -> None:
    pytest.importorskip("ortools", reason="the extra graph")
    answer = planned(2000, many_kinds(7), constraints=PlanConstraints(equal_treatment=True))
    assert answer.rung is Rung.GRAPH
    assert answer.lower_bound <= answer.extra_ns
    options = [action.option for action in answer.actions]
    assert options[:7] == options[7:]


def test_a_missing_solver_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(MissingExtraError, match=r"haversack\[server,graph\]"):
        planned(2000, many_kinds(7), constraints=PlanConstraints(equal_treatment=True))
