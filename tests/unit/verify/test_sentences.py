"""What reports say in words: what is proved and what is not, what cures it, what was measured."""

from dataclasses import replace

import pytest
from tests.unit.verify.outcomes import MOVED, RAISED, REQUEST, plain, report, runs

from haversack.parallelism import Sharding
from haversack.verify import (
    DifferenceCause,
    Facet,
    FacetResult,
    FacetValue,
    FirstDifference,
    TrainingCheckpoint,
    VerifyEnvironment,
    VerifyEvidence,
    VerifyReport,
    VerifyRequest,
    VerifyResume,
    VerifySharded,
    VerifyWorld,
)
from haversack_server.verify import reports
from haversack_server.verify.comparison import Closeness, Row
from haversack_server.verify.rank_evidence import with_ranks
from haversack_server.verify.resumable import resume_of
from haversack_server.verify.resume_outcome import ResumeRank, ResumeRuns
from haversack_server.verify.resume_report import resumed


def evidence_of(found: VerifyReport) -> VerifyEvidence:
    assert found.evidence is not None
    return found.evidence


def test_only_what_is_equal_is_said_to_be_what_it_is_without() -> None:
    first, second = evidence_of(report(runs(rows=(MOVED,)))).proves
    assert "outputs, parameter gradients, random states, side effects are what they are" in first
    assert second.endswith("is what changes buffers")


def test_a_tolerance_that_rounding_has_is_said_to_be_one() -> None:
    close = Row(facet=Facet.OUTPUTS, name="y", closeness=Closeness.CLOSE, max_difference=1e-9)
    for row, is_said in ((close, False), (replace(close, is_rounding=True), True)):
        (outputs, *_) = report(runs(rows=(row,))).facets
        assert outputs.value is FacetValue.WITHIN_TOLERANCE
        assert ("or by rounding beside larger values" in outputs.detail) is is_said


def test_the_cure_follows_from_the_place_for_what_replays_change_alone() -> None:
    place = FirstDifference(region="block", cause=DifferenceCause.RNG)
    traced = plain(first_difference=place)
    row = replace(MOVED, facet=Facet.PARAMETER_GRADIENTS)
    found = report(replace(runs(rows=(row, MOVED)), traced=traced))
    hints = {each.facet: each.fix_hint for each in found.facets}
    assert hints[Facet.PARAMETER_GRADIENTS].startswith("The replay draws other numbers")
    assert hints[Facet.BUFFERS].startswith("The replay updates buffers once more")
    assert hints[Facet.OUTPUTS] == ""


def test_a_replay_that_raises_has_a_cure_of_its_own() -> None:
    hints = {each.facet: each.fix_hint for each in report(runs(raised=RAISED)).facets}
    assert hints[Facet.PARAMETER_GRADIENTS].startswith("The replay took another path")
    assert hints[Facet.OUTPUTS] == ""


def test_a_measured_step_that_raises_is_said() -> None:
    said = "No step of the plan was measured, since one raised: ValueError: no"
    assert said in report(replace(runs(), planned=plain(raised=RAISED))).assumptions
    assert said not in report(replace(runs(), planned=plain())).assumptions


@pytest.mark.parametrize(
    ("backend", "where"),
    [
        (
            "gloo",
            "NCCL, streams that overlap, or several machines: 2 ranks on processes of one CPU",
        ),
        ("nccl", "streams that overlap, or several machines: 2 ranks on one machine's GPUs"),
    ],
)
@pytest.mark.parametrize("value", [FacetValue.EQUAL_BITWISE, FacetValue.WITHIN_TOLERANCE])
def test_ranks_say_where_they_ran_and_how_near_they_are_to_one_process(
    backend: str, where: str, value: FacetValue
) -> None:
    ranks = VerifySharded(
        sharding=Sharding.FSDP2,
        world_size=2,
        backend=backend,
        against_unsharded=(FacetResult(facet=Facet.OUTPUTS, value=value),),
    )
    found = evidence_of(with_ranks(report(runs()), ranks, notes=(), strict=False))
    assert f"Anything about {where} spoke over {backend}" in found.does_not_prove
    is_close = value is FacetValue.WITHIN_TOLERANCE
    assert found.proves[-1].endswith("within the tolerance of their dtypes") is is_close


def of_training(
    request: VerifyRequest = REQUEST,
    saved_as: TrainingCheckpoint = TrainingCheckpoint.UNSPECIFIED,
    *,
    draws: bool = False,
) -> VerifyReport:
    ranks = (ResumeRank(rank=0, losses=(0.5,), draws=draws),)
    return resumed(
        report(runs()),
        request,
        resume_of(VerifyResume(saved_as=saved_as), VerifyWorld(size=1)),
        ResumeRuns(uninterrupted=ranks, again=ranks, saved=ranks, resumed=ranks),
        environment=VerifyEnvironment(),
    )


@pytest.mark.parametrize("draws", [False, True])
def test_training_says_whether_it_drew(draws: bool) -> None:
    unsaid = "Much about random states: no step after the stop draws a random number"
    found = evidence_of(of_training(draws=draws))
    assert (unsaid in found.does_not_prove) is not draws


def test_training_says_how_it_was_run() -> None:
    asked = replace(REQUEST, deterministic_algorithms=True, threads=3)
    assert of_training(asked).pinned[-1].startswith("3 thread(s) for operators; ")
    assert of_training(asked).pinned[-1].endswith("is on")
    assert of_training().pinned[-1].startswith("1 thread(s) for operators; ")
    assert of_training().pinned[-1].endswith("is off")


@pytest.mark.parametrize(
    ("saved_as", "words"),
    [
        (TrainingCheckpoint.UNSPECIFIED, "shards by every rank"),
        (TrainingCheckpoint.SHARDED, "shards by every rank"),
        (TrainingCheckpoint.FULL, "whole tensors by rank 0"),
    ],
)
def test_training_says_what_was_saved(saved_as: TrainingCheckpoint, words: str) -> None:
    found = of_training(saved_as=saved_as)
    assert found.assumptions[0].startswith(
        f"What was saved is a training checkpoint on disk ({words}"
    )
    assert found.resumed is not None
    assert found.resumed.saved_as is (saved_as or TrainingCheckpoint.SHARDED)


def test_only_what_raises_both_ways_has_no_comparison() -> None:
    raises = plain(raised=RAISED)
    both = replace(runs(raised=RAISED), plain=raises)
    assert reports.raised_in_both(both) is not None
    assert reports.raised_in_both(replace(runs(), plain=raises)) is None
    assert reports.raised_in_both(runs(raised=RAISED)) is None
