"""A tolerance is for rounding, not for what a replay has written again."""

import pytest
from tests.unit.verify.outcomes import checkpointed, plain, runs, values

from haversack.verify import Facet, FacetValue
from haversack_server.verify.comparison import Closeness, Row
from haversack_server.verify.findings import Outcomes
from haversack_server.verify.ranks import RankOutcome, merged


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


def test_what_is_not_watched_keeps_its_tolerance() -> None:
    assert values(runs(rows=(near(),)))[Facet.BUFFERS] is FacetValue.WITHIN_TOLERANCE


def test_what_replays_of_any_rank_have_written_is_known() -> None:
    written = (("mean",), (), ("count", "mean"))
    ranks = [
        RankOutcome(rank=rank, outcome=checkpointed(rewritten=names))
        for rank, names in enumerate(written)
    ]
    assert merged(ranks).rewritten == ("count", "mean")
