"""Resume jobs without torch: what is asked, what is refused, what findings and reports say."""

from dataclasses import replace
from typing import Any

import pytest

from haversack.errors import HaversackError, InvalidRequestError
from haversack.parallelism import Sharding
from haversack.requests import verify_request
from haversack.run import WorkloadReference
from haversack.verify import (
    Facet,
    FacetValue,
    FailureReason,
    TrainingCheckpoint,
    VerifyEnvironment,
    VerifyReport,
    VerifyRequest,
    VerifyResume,
    VerifySchedule,
    VerifyVerdict,
    VerifyWorld,
)
from haversack_server.verify.admissible import check_admissible
from haversack_server.verify.catalog import with_own_settings
from haversack_server.verify.comparison import Closeness, Row
from haversack_server.verify.outcome import Raised
from haversack_server.verify.resumable import Resume, most_ranks, resume_of
from haversack_server.verify.resume_findings import resume_findings
from haversack_server.verify.resume_outcome import ResumeRank, ResumeRuns
from haversack_server.verify.resume_random import SourceRead
from haversack_server.verify.resume_report import failure_of, resumed

WHOLE = WorkloadReference(name="resume-whole")
FSDP2 = VerifyWorld(size=2, sharding=Sharding.FSDP2)
ASKED = VerifyRequest(workload=WHOLE, world=FSDP2, resume=VerifyResume())
SAME = resume_of(VerifyResume(), FSDP2)
MORE = resume_of(VerifyResume(size=4), FSDP2)
OWN = {Facet.RNG.name: 3, Facet.SAMPLER_POSITION.name: 1}
COUNTS = OWN | {
    Facet.PARAMETERS.name: 4,
    Facet.OPTIMIZER_STATE.name: 9,
    Facet.NEXT_STEPS.name: 7,
}


def row(facet: Facet, name: str, closeness: Closeness, difference: float | None = 1.0) -> Row:
    return Row(facet=facet, name=name, closeness=closeness, max_difference=difference)


LOST = row(Facet.OPTIMIZER_STATE, "body exp_avg", Closeness.DIFFERENT)
FOLLOWS = row(Facet.NEXT_STEPS, "step 4 loss", Closeness.DIFFERENT)


def ranks(*rows: Row, size: int = 2, **fields: Any) -> tuple[ResumeRank, ...]:
    first = ResumeRank(rank=0, rows=rows, counts=COUNTS, losses=(0.5,), **fields)
    return (first, *(ResumeRank(rank=rank, counts=OWN) for rank in range(1, size)))


def runs(*rows: Row, noise: tuple[Row, ...] = (), **fields: Any) -> ResumeRuns:
    kept = ("model", "optimizer")
    return ResumeRuns(
        uninterrupted=ranks(draws=True),
        again=ranks(*noise),
        saved=ranks(kept=kept, checkpoint_bytes=100),
        resumed=ranks(*rows, **fields),
    )


def values(found: ResumeRuns, resume: Resume = SAME) -> dict[Facet, FacetValue]:
    return {each.facet: each.value for each in resume_findings(found, resume)}


def report(found: ResumeRuns, resume: Resume = SAME, **asked: Any) -> VerifyReport:
    request = replace(ASKED, **asked)
    return resumed(VerifyReport(), request, resume, found, environment=VerifyEnvironment())


def test_a_pair_of_ranks_names_who_saves_and_who_goes_on() -> None:
    asked = verify_request(workload="resume-whole", resume="2:4", saved_as="full", steps_after=5)
    assert asked.world == FSDP2
    assert asked.resume == VerifyResume(size=4, saved_as=TrainingCheckpoint.FULL, steps_after=5)
    assert most_ranks(asked) == 4
    again = verify_request(workload="resume-whole", resume="4", shard="ddp", world_size=4)
    assert again.world == VerifyWorld(size=4, sharding=Sharding.REPLICATED)
    assert again.resume is not None
    assert again.resume.size == 4
    assert verify_request(workload="resume-whole", resume=4, shard="ddp") == again
    check_admissible(asked, ())
    check_admissible(again, ())


def test_a_step_that_is_built_in_is_no_training_run() -> None:
    asked = verify_request(workload="mlp", resume="2:4")
    with pytest.raises(InvalidRequestError, match="mlp is one step") as refused:
        check_admissible(asked, ())
    assert refused.value.field == "resume"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"resume": "two"}, "resume"),
        ({"resume": 2.5}, "resume"),
        ({"resume": "2:4", "shard": "ddp", "world_size": 1}, "world.size"),
        ({"resume": "2:4", "world_size": 4}, "world.size"),
        ({"resume": "2:4", "saved_as": "half"}, "resume.saved_as"),
        ({"resume": "2:4", "steps_before": 0}, "resume.steps_before"),
        ({"resume": "2:4", "steps_after": 101}, "resume.steps_after"),
        ({"saved_as": "full"}, "saved_as"),
        ({"steps_before": 2}, "steps_before"),
        ({"leave_out_each": True}, "leave_out_each"),
    ],
)
def test_what_is_no_stop_is_refused_with_its_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        verify_request(workload="resume-whole", **given)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"world": None}, "world: a resume job saves on several ranks"),
        ({"world": VerifyWorld(size=3)}, "world.size: 3 ranks are not run; 1, 2 or 4"),
        ({"resume": VerifyResume(size=8)}, "resume.size: 8 ranks are not run"),
        ({"world": VerifyWorld(size=2, sharding=Sharding.ZERO_1)}, "world.sharding: ZERO_1"),
        ({"schedule": VerifySchedule.TWO_STEPS}, "schedule: a resume job takes whole steps"),
        ({"regions": ("body",)}, "regions: it is about activation checkpoints"),
        ({"early_stop": False}, "early_stop: it is about activation checkpoints"),
        ({"use_reentrant": True}, "use_reentrant: it is about activation checkpoints"),
    ],
)
def test_what_cannot_be_resumed_is_refused_before_a_job(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(HaversackError, match=words):
        check_admissible(replace(ASKED, **fields), ())


def test_a_built_in_case_of_training_is_resumed_unless_its_request_says_how() -> None:
    own = with_own_settings(VerifyRequest(workload=WHOLE))
    assert (own.resume, own.world) == (VerifyResume(), FSDP2)
    asked = replace(ASKED, resume=VerifyResume(size=4), world=VerifyWorld(size=1))
    assert with_own_settings(asked) == asked


def test_what_is_equal_is_equivalent_and_every_facet_of_state_is_there() -> None:
    found = values(runs())
    assert set(found.values()) == {FacetValue.EQUAL_BITWISE, FacetValue.NOT_CHECKED}
    assert found[Facet.SCHEDULE] is FacetValue.NOT_CHECKED  # there is none
    assert report(runs()).verdict is VerifyVerdict.EQUIVALENT


def test_state_that_was_lost_is_named_and_cured_and_what_follows_from_it_is_not() -> None:
    found = report(runs(LOST, FOLLOWS))
    assert found.verdict is VerifyVerdict.DIFFERENT
    assert "get_optimizer_state_dict" in found.facet(Facet.OPTIMIZER_STATE).fix_hint
    assert found.facet(Facet.NEXT_STEPS).fix_hint == ""
    assert report(runs(LOST, FOLLOWS), waivers=tuple(Facet)[1:]).verdict is VerifyVerdict.EQUIVALENT


def test_steps_that_differ_alone_have_a_cause_that_nothing_keeps() -> None:
    hint = report(runs(FOLLOWS)).facet(Facet.NEXT_STEPS).fix_hint
    assert "give it a name in extras" in hint
    samples = row(Facet.NEXT_STEPS, "step 4 batch", Closeness.DIFFERENT, None)
    hint = report(runs(samples, FOLLOWS)).facet(Facet.NEXT_STEPS).fix_hint
    assert "generator of a shuffle" in hint


def test_a_lost_state_of_one_rank_is_that_ranks() -> None:
    lost = row(Facet.RNG, "torch cpu", Closeness.DIFFERENT, None)
    found = replace(runs(), resumed=(*ranks()[:1], ResumeRank(rank=1, counts=OWN, rows=(lost,))))
    finding = next(each for each in resume_findings(found, SAME) if each.facet is Facet.RNG)
    assert (finding.value, finding.names) == (FacetValue.DIFFERENT, ("rank 1 torch cpu",))
    assert finding.compared_count == 6


@pytest.mark.parametrize(
    ("noise", "difference", "value"),
    [
        ((), 1e-8, FacetValue.WITHIN_TOLERANCE),
        ((row(Facet.NEXT_STEPS, "step 4 loss", Closeness.CLOSE, 1e-8),), 2e-8,
         FacetValue.WITHIN_NOISE),
        ((row(Facet.NEXT_STEPS, "step 4 loss", Closeness.DIFFERENT),), 1e-8,
         FacetValue.INCONCLUSIVE),
    ],
)  # fmt: skip
def test_steps_on_other_ranks_are_held_against_such_ranks_that_were_not_stopped(
    noise: tuple[Row, ...], difference: float, value: FacetValue
) -> None:
    near = row(Facet.NEXT_STEPS, "step 4 loss", Closeness.CLOSE, difference)
    found = next(
        each
        for each in resume_findings(runs(near, noise=noise), MORE)
        if each.facet is Facet.NEXT_STEPS
    )
    assert found.value is value
    assert ("4 ranks" in found.detail) is (value is not FacetValue.WITHIN_TOLERANCE)


def test_random_states_on_another_number_of_ranks_are_judged_by_what_was_given() -> None:
    lost = SourceRead(
        source="torch cpu", drawn_before=True, drawn_after=True, unchanged=True, begins_again=True
    )
    assert report(runs(), MORE).facet(Facet.RNG).value is FacetValue.NOT_CHECKED
    found = report(runs(random=(lost,)), MORE)
    assert found.verdict is VerifyVerdict.DIFFERENT
    assert found.facet(Facet.RNG).detail.startswith("4 ranks in place of 2 go on. Left out: rank 0")


def test_lost_state_decides_where_steps_do_not_repeat_themselves() -> None:
    noise = (row(Facet.NEXT_STEPS, "step 4 loss", Closeness.DIFFERENT),)
    assert report(runs(FOLLOWS, noise=noise)).verdict is VerifyVerdict.INCONCLUSIVE
    found = report(runs(LOST, FOLLOWS, noise=noise))
    assert found.verdict is VerifyVerdict.DIFFERENT
    assert found.facet(Facet.NEXT_STEPS).value is FacetValue.NOT_CHECKED


def test_what_ranks_that_saved_do_not_share_is_undecided_on_others() -> None:
    apart = row(Facet.BUFFERS, "norm.running_mean", Closeness.DIFFERENT)
    first, other = runs(between_ranks=(apart,)).resumed
    first = replace(first, counts=COUNTS | {Facet.BUFFERS.name: 2})
    found = replace(runs(), resumed=(first, other))
    finding = report(found, MORE).facet(Facet.BUFFERS)
    assert finding.value is FacetValue.INCONCLUSIVE
    assert "ranks that saved differ among each other" in finding.detail


def test_a_restore_that_raises_is_different_and_cannot_be_waived() -> None:
    raised = Raised(part="restore", kind="KeyError", message="'head.weight'")
    later = ResumeRank(rank=0, ended_ns=9, raised=replace(raised, part="step 4"))
    found = replace(runs(), resumed=(later, ResumeRank(rank=1, ended_ns=5, raised=raised)))
    answer = report(found, waivers=(Facet.NEXT_STEPS,))
    assert answer.verdict is VerifyVerdict.DIFFERENT
    finding = answer.facet(Facet.NEXT_STEPS)
    assert finding.value is FacetValue.RAISED_ONLY_RESUMED
    assert "in restore on rank 1 of 2: KeyError" in finding.detail


def test_a_save_that_changes_the_run_is_a_warning() -> None:
    changed = replace(runs(), saved=ranks(row(Facet.RNG, "torch cpu", Closeness.DIFFERENT)))
    (warning,) = report(changed).warnings
    assert "1 parts of its state, first torch cpu on rank 0" in warning


def test_a_run_that_raises_before_there_are_files_leaves_nothing_to_compare() -> None:
    raised = Raised(part="save", kind="ValueError", message="no space")
    found = failure_of("saved", (ResumeRank(rank=0, raised=raised),), decides=True)
    assert found is not None
    assert found.reason is FailureReason.WORKLOAD_RAISED
    assert "in the saved run, in save on rank 0 of 1: ValueError: no space" in found.message
    assert failure_of("resumed", (ResumeRank(rank=0, raised=raised),), decides=False) is None


def test_a_kind_that_is_left_out_and_not_missed_is_not_proved() -> None:
    lost = replace(ranks(LOST, FOLLOWS)[0], left_out=True)
    unmissed = replace(ranks()[0], left_out=True)
    raised = ResumeRank(rank=0, raised=Raised(part="restore", kind="KeyError", message="'a'"))
    without = {
        Facet.OPTIMIZER_STATE: (lost,),
        Facet.RNG: (unmissed,),
        Facet.PARAMETERS: (raised,),
        Facet.SCHEDULE: ranks(),  # the files hold none
    }
    found = report(replace(runs(), without=without))
    assert found.verdict is VerifyVerdict.EQUIVALENT
    assert found.resumed is not None
    assert found.evidence is not None
    different, equal = FacetValue.DIFFERENT, FacetValue.EQUAL_BITWISE
    assert [(e.facet, e.value, e.next_steps) for e in found.resumed.left_out] == [
        (Facet.OPTIMIZER_STATE, different, different),
        (Facet.RNG, equal, equal),
        (Facet.PARAMETERS, FacetValue.NOT_CHECKED, FacetValue.RAISED_ONLY_RESUMED),
    ]
    assert "need rng: left out" in found.evidence.does_not_prove[-1]


def test_a_report_says_what_the_files_hold_and_that_they_are_no_activation_checkpoint() -> None:
    found = report(runs(missing=("rng",)))
    assert found.resumed is not None
    assert found.resumed.kept == ("model", "optimizer")
    assert found.resumed.missing == ("rng of rank 0",)
    assert [(each.step, each.resumed_loss) for each in found.resumed.steps] == [(4, 0.5)]
    assert found.evidence is not None
    assert any("activation checkpoints" in each for each in found.evidence.does_not_prove)


def test_a_report_names_the_ranks_that_asked_in_vain_where_others_did_not() -> None:
    first, second = ranks(missing=("scheduler",))
    found = replace(runs(), resumed=(first, replace(second, missing=("scheduler", "rng"))))
    answer = report(found).resumed
    assert answer is not None
    assert answer.missing == ("scheduler", "rng of rank 1")


def test_a_report_names_the_first_parts_of_files_that_have_many() -> None:
    many = replace(runs(), saved=ranks(kept=tuple(map(str, range(20_000)))))
    answer = report(many).resumed
    assert answer is not None
    assert len(answer.kept) == 20
