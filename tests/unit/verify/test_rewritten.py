"""A tolerance is for rounding, not for what a replay has written again or computed otherwise."""

from dataclasses import replace

import pytest
from tests.unit.verify.outcomes import checkpointed, plain, runs, values

from haversack.verify import (
    DifferenceCause,
    Facet,
    FacetValue,
    FirstDifference,
    SavedValues,
    StateChange,
)
from haversack_server.verify.comparison import Closeness, Row
from haversack_server.verify.findings import Outcomes
from haversack_server.verify.outcome import Outcome
from haversack_server.verify.ranks import RankOutcome, merged
from haversack_server.verify.rounded import is_exact, may_be_rounding


def near(facet: Facet = Facet.BUFFERS, name: str = "mean") -> Row:
    return Row(facet=facet, name=name, closeness=Closeness.CLOSE, max_difference=1e-9)


def found(row: Row, *written: str, noise: tuple[Row, ...] = ()) -> FacetValue:
    compared = runs(rows=(row,), again=plain(rows=noise))
    watched = checkpointed(rewritten=written)
    outcomes = Outcomes(
        plain=compared.plain,
        again=compared.again,
        checkpointed=compared.checkpointed,
        watched=watched,
    )
    return values(outcomes)[row.facet]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("mean", "mean"),
        ("rank 1 norm.mean", "norm.mean"),
        ("loss.norm.mean", "loss.norm.mean"),
    ],
)
def test_a_buffer_that_a_replay_has_written_differs_however_near_it_is(
    name: str, written: str
) -> None:
    row = near(name=name)
    assert found(row, written) is FacetValue.DIFFERENT
    assert found(row, "other") is FacetValue.WITHIN_TOLERANCE


def test_gradients_and_what_two_plain_runs_do_not_share_keep_their_tolerance() -> None:
    gradient = near(Facet.PARAMETER_GRADIENTS)
    assert found(gradient, "mean") is FacetValue.WITHIN_TOLERANCE
    assert found(near(), "mean", noise=(near(),)) is FacetValue.WITHIN_NOISE


ROUNDING = Row(
    facet=Facet.PARAMETER_GRADIENTS,
    name="k.bias",
    closeness=Closeness.CLOSE,
    max_difference=1e-9,
    is_rounding=True,
)
PLACE = FirstDifference(region="block", operation="aten.mul", cause=DifferenceCause.CONTROL_FLOW)
SAME = SavedValues(region="block", saved_count=2, compared_count=2)


def seen(watched: Outcome | None, traced: Outcome | None = None, **fields: object) -> FacetValue:
    compared = runs(**{"rows": (ROUNDING,), **fields})  # type: ignore[arg-type]
    outcomes = replace(compared, watched=watched, traced=traced)
    return values(outcomes)[Facet.PARAMETER_GRADIENTS]


@pytest.mark.parametrize(
    "watched",
    [
        None,  # as where two runs without a probe are compared
        checkpointed(),  # the reentrant variant saves nothing in a forward
        checkpointed(saved=(SAME,), rewritten=("k.bias",)),
    ],
)
def test_a_gradient_is_rounding_where_no_replay_was_seen_to_differ(watched: Outcome | None) -> None:
    assert seen(watched, checkpointed()) is FacetValue.WITHIN_TOLERANCE


@pytest.mark.parametrize(
    ("watched", "traced"),
    [
        (checkpointed(saved=(SAME, replace(SAME, different_count=1))), None),
        (checkpointed(first_different_call=3), None),
        (checkpointed(changes=(StateChange(region="block", name="args[1][0]"),)), None),
        (checkpointed(), checkpointed(first_difference=PLACE)),
    ],
)
def test_no_gradient_is_rounding_where_a_replay_was_seen_to_differ(
    watched: Outcome, traced: Outcome | None
) -> None:
    assert seen(watched, traced) is FacetValue.DIFFERENT
    inside = replace(ROUNDING, is_rounding=False)
    assert seen(watched, traced, rows=(inside,)) is FacetValue.WITHIN_TOLERANCE


def test_no_gradient_is_rounding_where_another_random_state_is_left() -> None:
    assert seen(None, rng={"torch cpu": "other"}) is FacetValue.DIFFERENT


@pytest.mark.parametrize("place", ["", "rank 1 "])
@pytest.mark.parametrize("step", ["", "step 1: "])
def test_a_weight_that_was_stepped_by_another_gradient_is_a_warning(place: str, step: str) -> None:
    weight = replace(near(name=f"{place}w"), closeness=Closeness.DIFFERENT)
    rows = (weight, near(Facet.PARAMETER_GRADIENTS, f"{place}{step}w"))

    def buffers(watched: Outcome | None, *rows: Row) -> FacetValue:
        return values(replace(runs(rows=rows), watched=watched))[Facet.BUFFERS]

    assert buffers(checkpointed(), *rows) is FacetValue.WITHIN_TOLERANCE
    assert buffers(checkpointed(), weight) is FacetValue.DIFFERENT
    assert buffers(checkpointed(rewritten=("w",)), *rows) is FacetValue.DIFFERENT
    assert buffers(None, *rows) is FacetValue.DIFFERENT


def test_what_is_not_watched_keeps_its_tolerance() -> None:
    assert values(runs(rows=(near(),)))[Facet.BUFFERS] is FacetValue.WITHIN_TOLERANCE


def test_what_replays_of_any_rank_have_written_is_known() -> None:
    written = (("mean",), (), ("count", "mean"))
    ranks = [
        RankOutcome(rank=rank, outcome=checkpointed(rewritten=names))
        for rank, names in enumerate(written)
    ]
    assert merged(ranks).rewritten == ("count", "mean")


FAR = Row(
    facet=Facet.INPUT_GRADIENTS,
    name="args[0]",
    closeness=Closeness.DIFFERENT,
    max_difference=3e-7,
    has_no_direction=True,
)


def measured(row: Row, *most: float) -> FacetValue:
    rounded = tuple(plain(rows=(replace(FAR, max_difference=each),)) for each in most)
    compared = runs(rows=(row,), compared={"INPUT_GRADIENTS": 1})
    return values(replace(compared, rounded=rounded))[Facet.INPUT_GRADIENTS]


def test_a_gradient_is_rounding_up_to_twice_what_rounding_is_measured_to_do() -> None:
    assert measured(FAR, 1e-7, 1.6e-7) is FacetValue.WITHIN_TOLERANCE
    assert measured(FAR, 1e-7, 1.4e-7) is FacetValue.DIFFERENT
    assert measured(FAR) is FacetValue.DIFFERENT
    assert measured(replace(FAR, has_no_direction=False), 1.6e-7) is FacetValue.DIFFERENT
    assert measured(replace(FAR, name="args[1]"), 1.6e-7) is FacetValue.DIFFERENT


def test_rounding_is_measured_only_where_all_that_differs_may_be_it() -> None:
    near_buffer = near()
    assert may_be_rounding([FAR, near_buffer])
    assert not may_be_rounding([near_buffer])
    assert not may_be_rounding([FAR, replace(near_buffer, closeness=Closeness.DIFFERENT)])


def test_nothing_is_measured_by_a_backward_that_twice_the_loss_does_not_double() -> None:
    assert is_exact(plain(rows=(near(),)))
    assert not is_exact(plain(rows=(replace(FAR, closeness=Closeness.CLOSE),)))
