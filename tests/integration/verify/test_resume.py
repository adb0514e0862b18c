"""Resume jobs: real ranks save training over gloo to disk, and others go on from the files.

The default tests have one pair of ranks and some kinds of lost state; the slow tier has each pair,
both forms, and every kind that a case forgets (all of it is in ``python -m tests.bench.verify``).
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from haversack.parallelism import Sharding
from haversack.verify import (
    Facet,
    FacetValue,
    FailureReason,
    TrainingCheckpoint,
    VerifyResume,
    VerifyVerdict,
    VerifyWorld,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")
Verify = Callable[..., Awaitable[Any]]
FULL, SHARDED = TrainingCheckpoint.FULL, TrainingCheckpoint.SHARDED
REPLICATED, FSDP2 = Sharding.REPLICATED, Sharding.FSDP2
SAME = (FacetValue.EQUAL_BITWISE, FacetValue.NOT_CHECKED)
NEAR = (*SAME, FacetValue.WITHIN_NOISE, FacetValue.WITHIN_TOLERANCE)
TWO = {"world": VerifyWorld(size=2, sharding=FSDP2), "resume": VerifyResume()}


def pair(saved: int, resumed: int, form: TrainingCheckpoint, sharding: Sharding) -> dict[str, Any]:
    return {
        "world": VerifyWorld(size=saved, sharding=sharding),
        "resume": VerifyResume(size=resumed, saved_as=form),
    }


def values(report: Any) -> dict[Facet, FacetValue]:
    return {each.facet: each.value for each in report.facets}


async def test_training_goes_on_from_its_files_bit_for_bit(verify: Verify) -> None:
    report = await verify("resume-dropout")
    assert (report.failure, report.verdict) == (None, VerifyVerdict.EQUIVALENT)
    assert set(values(report).values()) <= set(SAME)
    assert values(report)[Facet.NEXT_STEPS] is FacetValue.EQUAL_BITWISE
    assert report.resumed.kept == ("data", "model", "optimizer", "rng", "scheduler")
    assert report.resumed.missing == ()
    assert [each.uninterrupted_loss == each.resumed_loss for each in report.resumed.steps] == [
        True
    ] * 3
    assert (report.environment.backend, report.environment.world_size) == ("gloo", 2)


@pytest.mark.parametrize(
    ("saved", "resumed", "form", "sharding"),
    [
        (2, 4, SHARDED, FSDP2),
        pytest.param(4, 2, FULL, FSDP2, marks=pytest.mark.slow),
        pytest.param(2, 2, FULL, REPLICATED, marks=pytest.mark.slow),
    ],
)
async def test_other_ranks_go_on_within_what_their_number_changes(
    verify: Verify, saved: int, resumed: int, form: TrainingCheckpoint, sharding: Sharding
) -> None:
    report = await verify("resume-whole", **pair(saved, resumed, form, sharding))
    assert (report.failure, report.verdict) == (None, VerifyVerdict.EQUIVALENT)
    found = values(report)
    assert set(found.values()) <= set(NEAR)
    # What is read is a copy, however it is divided; only what is computed from it is near.
    near = {facet for facet, value in found.items() if value not in SAME}
    assert near <= ({Facet.NEXT_STEPS} if saved != resumed else set())
    assert found[Facet.RNG] is (
        FacetValue.EQUAL_BITWISE if saved == resumed else FacetValue.NOT_CHECKED
    )


@pytest.mark.parametrize(
    ("case", "lost"),
    [
        ("resume-forgets-optimizer", Facet.OPTIMIZER_STATE),
        pytest.param("resume-forgets-buffer", Facet.BUFFERS, marks=pytest.mark.slow),
        pytest.param("resume-forgets-parameter-group", Facet.PARAMETERS, marks=pytest.mark.slow),
    ],
)
async def test_lost_state_is_named_on_another_number_of_ranks_too(
    verify: Verify, case: str, lost: Facet
) -> None:
    report = await verify(case, **pair(4, 2, FULL, FSDP2))
    assert report.verdict is VerifyVerdict.DIFFERENT
    different = {facet for facet, value in values(report).items() if value is FacetValue.DIFFERENT}
    assert different == {lost, Facet.NEXT_STEPS}


@pytest.mark.slow
async def test_random_numbers_of_another_number_of_ranks_leave_it_undecided(verify: Verify) -> None:
    report = await verify("resume-dropout", **pair(2, 4, SHARDED, FSDP2))
    assert report.verdict is VerifyVerdict.INCONCLUSIVE
    assert "as many ranks as saved" in report.facet(Facet.NEXT_STEPS).fix_hint
    # Those that saved have their own again, the others have numbers of nobody.
    assert report.facet(Facet.RNG).names == ("rank 2 torch cpu", "rank 3 torch cpu")


@pytest.mark.slow
async def test_random_states_that_were_left_out_are_found_on_another_number_of_ranks(
    verify: Verify,
) -> None:
    report = await verify("resume-forgets-random-states", **pair(4, 2, FULL, FSDP2))
    assert report.verdict is VerifyVerdict.DIFFERENT
    found = report.facet(Facet.RNG)
    assert found.value is FacetValue.DIFFERENT
    assert found.names == ("rank 0 torch cpu", "rank 1 torch cpu")
    assert report.facet(Facet.NEXT_STEPS).value is FacetValue.NOT_CHECKED


@pytest.mark.slow
async def test_each_kind_that_is_left_out_in_turn_is_missed(verify: Verify) -> None:
    resume = VerifyResume(leave_out_each=True, steps_before=2, steps_after=2)
    report = await verify("resume-dropout", world=VerifyWorld(size=2), resume=resume)
    assert report.verdict is VerifyVerdict.EQUIVALENT
    found = {each.facet: (each.value, each.next_steps) for each in report.resumed.left_out}
    raised = (FacetValue.NOT_CHECKED, FacetValue.RAISED_ONLY_RESUMED)
    lost = (FacetValue.DIFFERENT, FacetValue.DIFFERENT)
    kinds = (Facet.RNG, Facet.OPTIMIZER_STATE, Facet.SCHEDULE, Facet.SAMPLER_POSITION)
    assert found == {Facet.PARAMETERS: raised} | dict.fromkeys(kinds, lost)


async def test_training_with_no_more_than_weights_and_data_is_whole(verify: Verify) -> None:
    report = await verify(case="trainings:plain", **TWO)
    assert (report.failure, report.verdict) == (None, VerifyVerdict.EQUIVALENT)
    assert report.facet(Facet.SCHEDULE).value is FacetValue.NOT_CHECKED
    assert any("no step after the stop draws" in each for each in report.evidence.does_not_prove)


@pytest.mark.slow
async def test_statistics_of_each_ranks_own_samples_leave_other_ranks_undecided(
    verify: Verify,
) -> None:
    report = await verify(case="trainings:batch_statistics", **pair(2, 1, FULL, FSDP2))
    assert report.verdict is VerifyVerdict.INCONCLUSIVE
    assert report.facet(Facet.BUFFERS).value is FacetValue.INCONCLUSIVE


@pytest.mark.slow
@pytest.mark.parametrize(("sharding", "is_lost"), [(FSDP2, True), (REPLICATED, False)])
async def test_statistics_of_each_rank_are_lost_where_nothing_makes_them_those_of_the_first(
    verify: Verify, sharding: Sharding, is_lost: bool
) -> None:
    report = await verify(case="trainings:batch_statistics", **pair(2, 2, FULL, sharding))
    lost = ("rank 1 1.running_mean", "rank 1 1.running_var") if is_lost else ()
    assert report.facet(Facet.BUFFERS).names == lost
    assert report.facet(Facet.NEXT_STEPS).value is FacetValue.EQUAL_BITWISE


async def test_a_restore_that_raises_is_the_resumed_runs(verify: Verify) -> None:
    report = await verify(case="trainings:restore_raises", **TWO)
    assert report.verdict is VerifyVerdict.DIFFERENT
    found = report.facet(Facet.NEXT_STEPS)
    assert found.value is FacetValue.RAISED_ONLY_RESUMED
    assert "in restore on rank" in found.detail
    assert "KeyError: 'weights'" in found.detail


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("saves_one_name_twice", "ValueError: duplicated flatten key model.weight"),
        ("saves_a_number", "save gives the key 7; a text would do"),
    ],
)
async def test_what_cannot_be_written_says_why(verify: Verify, case: str, said: str) -> None:
    alone = {"world": VerifyWorld(size=1), "resume": VerifyResume(steps_before=1, steps_after=1)}
    report = await verify(case=f"trainings:{case}", **alone)
    assert said in report.failure.message


@pytest.mark.slow
async def test_a_save_that_changes_the_run_is_a_warning(verify: Verify) -> None:
    report = await verify(case="trainings:save_disturbs", **TWO)
    assert report.verdict is VerifyVerdict.DIFFERENT  # the restart draws it too, where it asks
    assert any("Saving changes the run itself" in each for each in report.warnings)


@pytest.mark.slow
async def test_a_rank_that_dies_while_it_reads_is_named(verify: Verify) -> None:
    report = await verify(case="trainings:dies_when_read", **TWO)
    assert report.failure.reason is FailureReason.RANK_LOST, report.failure
    assert report.failure.message == "Rank 1 of 2 exited with status 7 in the resumed run"


async def test_what_is_no_training_is_a_bad_workload_with_the_words_for_it(verify: Verify) -> None:
    report = await verify(case="trainings:no_training", **TWO)
    assert report.failure.reason is FailureReason.BAD_WORKLOAD
    assert "haversack.torch.TrainingWorkload would do, for a resume job" in report.failure.message
