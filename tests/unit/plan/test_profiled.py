"""Plans for a profile: the cheapest options whose peak fits, against all of them tried."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haversack.basis import Basis
from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.parallelism import Parallelism, Sharding
from haversack.plan import Plan, PlanConstraints, PlanRequest, PlanStatus, Rung
from haversack.profile import OptionTable, Profile, ProfileBlock, ProfileParameter
from haversack.run import Budget, BytesKind, Optimizer, Training
from haversack_server.plan.answer import plan

SAVED = OptionTable(
    option=("save",),
    retained_bytes=(10,),
    forward_peak_bytes=(15,),
    backward_peak_bytes=(20,),
    extra_ns=(0,),
)
BLOCK = OptionTable(
    option=("save", "recompute", "selective aten.mm.default:0"),
    retained_bytes=(100, 10, 40),
    forward_peak_bytes=(120, 60, 80),
    backward_peak_bytes=(150, 160, 150),
    extra_ns=(0, 50, 20),
)


def block(name: str, table: int, fingerprint: str = "") -> ProfileBlock:
    return ProfileBlock(
        name=name, table=table, parameter_bytes=8, gradient_bytes=8, fingerprint=fingerprint
    )


PROFILE = Profile(
    basis=Basis.PROFILED,
    blocks=(
        block("(before layers.0)", 0),
        block("layers.0", 1, "a"),
        block("layers.1", 1, "b"),
        block("layers.2", 1, "c"),
        block("(after layers.2)", 0),
    ),
    tables=(SAVED, BLOCK),
    held_by_caller_bytes=4,
    workspace_bytes=3,
    not_profiled=("times",),
    model_fingerprint="of the whole model",
)
SGD = Training(optimizer=Optimizer.SGD)
MOST = 2**63 - 1


def planned(budget_bytes: int, profile: Profile = PROFILE, **fields: Any) -> Plan:
    fields = {"training": SGD, "frontier_points": 0, **fields}
    return plan(PlanRequest(profile=profile, budget=Budget(bytes=budget_bytes), **fields))


def peak_by_hand(profile: Profile, chosen: tuple[int, ...], accumulation: int = 1) -> int:
    """Walk through the step moment by moment."""
    standing = sum(each.parameter_bytes for each in profile.blocks)
    standing += profile.held_by_caller_bytes + profile.workspace_bytes
    total = sum(each.gradient_bytes for each in profile.blocks)
    made = total if accumulation > 1 else 0
    kept, moments = [0], []
    for each, row in zip(profile.blocks, chosen, strict=True):
        table = profile.tables[each.table]
        moments.append(standing + made + kept[-1] + table.forward_peak_bytes[row])
        kept.append(kept[-1] + table.retained_bytes[row])
    for place in reversed(range(len(chosen))):
        table = profile.tables[profile.blocks[place].table]
        moments.append(standing + made + kept[place] + table.backward_peak_bytes[chosen[place]])
        made += 0 if accumulation > 1 else profile.blocks[place].gradient_bytes
    return max(*moments, standing + total)


def every_choice(profile: Profile) -> list[tuple[int, ...]]:
    counts = [range(len(profile.tables[each.table].option)) for each in profile.blocks]
    return list(product(*counts))


def cost(profile: Profile, chosen: tuple[int, ...]) -> int:
    rows = zip(profile.blocks, chosen, strict=True)
    return sum(profile.tables[each.table].extra_ns[row] for each, row in rows)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_every_budget_has_the_cheapest_plan_that_fits(accumulation: int) -> None:
    peaks = {each: peak_by_hand(PROFILE, each, accumulation) for each in every_choice(PROFILE)}
    floor = min(peaks.values())
    training = replace(SGD, accumulation=accumulation)
    for budget_bytes in range(floor - 1, max(peaks.values()) + 2, 7):
        answer = planned(budget_bytes, training=training)
        assert answer.floor_bytes == floor
        fitting = [each for each, peak in peaks.items() if peak <= budget_bytes]
        if not fitting:
            assert answer.status is PlanStatus.INFEASIBLE
            continue
        assert answer.status is PlanStatus.OPTIMAL
        assert answer.extra_ns == min(cost(PROFILE, each) for each in fitting)
        names = [
            PROFILE.tables[each.table].option.index(action.option)
            for each, action in zip(PROFILE.blocks, answer.actions, strict=True)
        ]
        assert answer.predicted_peak_bytes == peaks[tuple(names)] <= budget_bytes


SIZES = st.integers(0, 30)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    def table(options: int) -> OptionTable:
        retained = [draw(SIZES) for _ in range(options)]
        return OptionTable(
            option=tuple("save" if i == 0 else f"selective a.b:{i}" for i in range(options)),
            retained_bytes=tuple(retained),
            forward_peak_bytes=tuple(each + draw(SIZES) for each in retained),
            backward_peak_bytes=tuple(each + draw(SIZES) for each in retained),
            extra_ns=tuple(0 if i == 0 else draw(SIZES) for i in range(options)),
        )

    tables = tuple(table(draw(st.integers(1, 3))) for _ in range(draw(st.integers(1, 3))))
    places = draw(st.lists(st.integers(0, len(tables) - 1), min_size=1, max_size=5))
    blocks = tuple(block(f"layers.{i}", each) for i, each in enumerate(places))
    return Profile(blocks=blocks, tables=tables, held_by_caller_bytes=draw(SIZES))


@settings(max_examples=40, deadline=None)
@given(profile=profiles(), share=st.floats(0, 1))
def test_a_plan_is_the_best_of_all(profile: Profile, share: float) -> None:
    peaks = {each: peak_by_hand(profile, each) for each in every_choice(profile)}
    least, most = min(peaks.values()), max(peaks.values())
    answer = planned(least + int(share * (most - least)), profile)
    fitting = [each for each in peaks if peaks[each] <= least + int(share * (most - least))]
    assert answer.floor_bytes == least
    assert answer.extra_ns == min(cost(profile, each) for each in fitting)


def test_an_answer_says_what_it_stands_on() -> None:
    answer = planned(10**6, training=Training(seq=5), frontier_points=4, fit_expected=True)
    assert answer.basis is Basis.PROFILED
    assert answer.rung is Rung.CEILING
    assert answer.not_modelled == ("times",)
    assert "optimizer: AdamW" in answer.assumptions
    seq, margin = answer.ignored_inputs
    assert seq.startswith("training.seq: the profile is of the step as it ran; change the workload")
    assert margin.startswith("fit_expected: ")
    assert [action.fingerprint for action in answer.actions] == ["", "a", "b", "c", ""]
    assert answer.model_fingerprint == "of the whole model"
    costs = [point.cost for point in answer.frontier]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == 0
    assert all(point.peak_bytes <= point.budget_bytes for point in answer.frontier)
    assert answer.peak_at is not None
    assert answer.peak_at.moment == "backward layers.2"


def test_adamw_adds_two_copies_of_the_gradients() -> None:
    without = planned(10**6).predicted_peak_bytes
    with_moments = planned(10**6, training=Training()).predicted_peak_bytes
    assert without is not None
    assert with_moments == without + 2 * 5 * 8


def test_an_infeasible_budget_says_where_the_floor_is() -> None:
    answer = planned(50)
    assert answer.status is PlanStatus.INFEASIBLE
    assert "the least peak is" in answer.reason
    assert answer.floor_at is not None
    assert answer.floor_at.block


def test_constraints_are_kept_and_blocks_between_can_only_be_saved() -> None:
    answer = planned(
        10**6, constraints=PlanConstraints(must_recompute=("layers.1",), must_save=("layers.0",))
    )
    assert answer.actions[1].option == "save"
    assert answer.actions[2].option == "selective aten.mm.default:0"
    assert answer.ignored_inputs == ()
    with pytest.raises(InvalidRequestError, match="can only be saved"):
        planned(10**6, constraints=PlanConstraints(must_recompute=("(before layers.0)",)))


def assert_refused(match: str, error: type[Exception] = InvalidRequestError, **fields: Any) -> None:
    request = {"profile": PROFILE, "budget": Budget(bytes=1000), "training": SGD, **fields}
    with pytest.raises(error, match=match):
        plan(PlanRequest(**request))


def test_what_a_profile_cannot_answer_is_refused() -> None:
    assert_refused("needs a budget", budget=None)
    assert_refused("budget.kind", NotSupportedError, budget=Budget(bytes=1, kind=BytesKind.DEVICE))
    of_tensors = Parallelism(world_size=8, tp=2)
    assert_refused("parallelism", NotSupportedError, parallelism=of_tensors)
    assert_refused("ADAFACTOR", NotSupportedError, training=Training(optimizer=Optimizer.ADAFACTOR))
    assert_refused("has no blocks", profile=Profile())
    assert_refused("has no options", profile=replace(PROFILE, tables=(SAVED, OptionTable())))
    twice = replace(PROFILE, blocks=(PROFILE.blocks[1], PROFILE.blocks[1]))
    assert_refused("there twice", profile=twice)
    huge = OptionTable(
        option=("save",),
        retained_bytes=(2**62,),
        forward_peak_bytes=(2**62,),
        backward_peak_bytes=(2**62,),
        extra_ns=(0,),
    )
    assert_refused("more than can be written", profile=replace(PROFILE, tables=(SAVED, huge)))
    own = replace(PROFILE, optimizer_state_bytes=0, optimizer_step_bytes=2**63 - 1)
    assert_refused("more than can be written", profile=own, training=Training())
    with pytest.raises(InvalidRequestError, match="less than nothing") as error:
        planned(1000, replace(PROFILE, workspace_bytes=-1000))
    assert error.value.field == "profile.workspace_bytes"
    with pytest.raises(InvalidRequestError, match="held_by_caller_bytes: -1 is too small"):
        replace(PROFILE, held_by_caller_bytes=-1)


@pytest.mark.parametrize(
    ("fields", "of_block", "ranks"),
    [
        ({}, {"waiting_bytes": MOST}, 1),
        ({"region_bytes": MOST}, {}, 1),
        ({}, {"arriving_bytes": MOST}, 2),
        ({"model_forward_peak_bytes": MOST}, {}, 2),
    ],
)
def test_figures_of_segments_and_ranks_beyond_what_can_be_written_are_refused(
    fields: dict[str, Any], of_block: dict[str, Any], ranks: int
) -> None:
    inside: dict[str, Any] = {"segment_bytes": 1, "segment_peak_bytes": 1, "forward_ns": 1}
    rows = (ProfileParameter(rows=4, row_bytes=2),)
    whole = replace(PROFILE.blocks[1], parameters=rows, **inside)
    blocks = (replace(whole, **of_block), replace(whole, name="layers.1"))
    assert_refused(
        "more than can be written",
        profile=replace(PROFILE, blocks=blocks, **fields),
        parallelism=Parallelism(world_size=ranks, sharding=Sharding.FSDP2),
    )
