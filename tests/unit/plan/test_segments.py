"""Segments in plans for profiles: exact against every way to cut, and never above the budget."""

import random
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bench import plan_walks
from tests.unit.plan.segment_walks import (
    cut_of,
    plans,
    plans_at_length,
    profiles,
    time_of,
    walked,
)
from tests.unit.plan.test_profiled import PROFILE, block, every_choice, peak_by_hand, planned

from haversack.errors import InvalidRequestError, MissingExtraError
from haversack.plan import PlanConstraints, PlanStatus, Rung
from haversack.profile import OptionTable, Profile
from haversack_server.plan import profiled_beside, segment_search
from haversack_server.plan.ladder import Ladder
from haversack_server.plan.nested import Nest
from haversack_server.plan.pieces import Moment, backward_of, pieces_of
from haversack_server.plan.profiled_chain import chain_of, options_of
from haversack_server.plan.solving import Solving


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
    assert sorted(plans_at_length(profile)) == sorted(every)


@pytest.mark.slow
def test_a_plan_of_eight_blocks_is_the_best_of_all() -> None:
    draw = random.Random(80)
    found = [plan_walks.counted(plan_walks.drawn(draw, 8)) for _ in range(6)]
    assert sum(each.plans for each in found) > 100_000
    assert sum(each.by_nests for each in found) > 0
    assert [each.wrong for each in found] == [0] * len(found)


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
    assert any(action.inner_segments for action in answer.actions)
    assert {a.option for a in answer.actions if a.segment} == {"recompute"}
    assert "segment" in answer.reason
    assert "sqrt(n) segments" in {each.name for each in answer.baselines}


def test_what_the_floor_knows_no_plan_of_is_said() -> None:
    def said(blocks: int, **fields: Any) -> list[str]:
        repeated = (replace(WIDE.blocks[0], name=f"layers.{place}") for place in range(blocks))
        answer = planned(1, replace(WIDE, blocks=tuple(repeated)), **fields)
        assert answer.floor_bytes
        return [each for each in answer.assumptions if each.startswith("segments:")]

    assert said(24) == []
    assert "none within another in a row of more than 24 blocks" in said(25)[0]
    assert "none in a chain of more than 130 parts" in said(131)[0]
    assert said(131, constraints=PlanConstraints(without_segments=True)) == []
    assert "with equal treatment" in said(4, constraints=PlanConstraints(equal_treatment=True))[0]


def is_plain(nest: Nest) -> bool:
    return all(isinstance(each, int) for each in nest)


def test_a_segment_keeps_a_state_of_the_generator_for_each_of_its_blocks() -> None:
    def moments(found: Profile) -> list[Moment]:
        chain = chain_of(found, options_of(found), moments_bytes=0, accumulation=1)
        pieces = [piece for row in pieces_of(chain) for piece in row if is_plain(piece.nest)]
        return [moment for piece in pieces for moment in backward_of(chain, piece)]

    # A recomputed row has the block's own; those beside it are there while all run again.
    left = tuple(replace(each, segment_bytes=7) for each in WIDE.blocks)
    with_states = moments(replace(WIDE, region_bytes=7, blocks=left))
    more = {
        (one.phase, other.own_bytes - one.own_bytes)
        for one, other in zip(moments(WIDE), with_states, strict=True)
        if other != one
    }
    assert more == {
        *(("recomputation", 7 * (blocks - 1)) for blocks in range(2, 7)),
        *(("backward", 7 * blocks) for blocks in range(2, 7)),
    }


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
