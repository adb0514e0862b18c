"""What ranks' outcomes are together: one run of the report, and what is said of ranks."""

from dataclasses import replace

import pytest
from tests.unit.verify.outcomes import MOVED, checkpointed, plain, report

from haversack.basis import Basis
from haversack.parallelism import Sharding
from haversack.verify import (
    CollectiveCount,
    Facet,
    FacetSeverity,
    FacetValue,
    FirstDifference,
    VerifyApplied,
    VerifySchedule,
    VerifySharded,
    VerifyVerdict,
    VerifyWorld,
)
from haversack_server.verify.comparison import Closeness, Row
from haversack_server.verify.outcome import Outcome, Raised
from haversack_server.verify.rank_evidence import with_ranks
from haversack_server.verify.rank_predictions import Predicted, with_predicted
from haversack_server.verify.ranks import RankOutcome, RankRuns, merged, sharded

WORLD = VerifyWorld(size=2, sharding=Sharding.FSDP2)
NOT_REDUCED = Row(facet=Facet.PARAMETER_GRADIENTS, name="w", closeness=Closeness.DIFFERENT)


def rank(number: int, **fields: object) -> RankOutcome:
    found = RankOutcome(
        rank=number,
        outcome=plain(),
        against_counts={"OUTPUTS": 2} | ({"PARAMETER_GRADIENTS": 1} if number == 0 else {}),
        collectives={"c10d._allgather_base_": 9, "c10d._reduce_scatter_base_": 5},
    )
    return replace(found, **fields)  # type: ignore[arg-type]


def runs(**first: object) -> RankRuns:
    pair = [rank(0, **first), rank(1)]
    replayed = [rank(number, outcome=checkpointed()) for number in range(2)]
    return RankRuns(
        plain=pair, again=pair, checkpointed=replayed, watched_plain=pair, watched=replayed
    )


def found(**first: object) -> VerifySharded:
    return sharded(runs(**first), WORLD, "gloo", ("",))


def test_figures_are_the_worst_and_names_carry_their_rank() -> None:
    slow = plain(time_ns=30, peak_bytes=70, rows=(MOVED,), rng={"torch cpu": "c"})
    one = merged([rank(0), rank(1, outcome=slow)])
    assert (one.time_ns, one.peak_bytes) == (30, 100)
    assert one.compared == {"OUTPUTS": 4, "PARAMETER_GRADIENTS": 6, "BUFFERS": 2}
    assert [row.name for row in one.rows] == ["rank 1 mean"]
    assert one.rng == {
        "rank 0 torch cpu": "a",
        "rank 0 python": "b",
        "rank 1 torch cpu": "c",
    }


def test_regions_are_told_once_where_ranks_agree_and_by_rank_where_not() -> None:
    assert [count.region for count in merged([rank(0), rank(1)]).regions] == ["block"]
    other = rank(1, outcome=plain(regions=(replace(plain().regions[0], entries=3),)))
    names = [count.region for count in merged([rank(0), other]).regions]
    assert names == ["rank 0 block", "rank 1 block"]


def test_the_rank_that_raised_first_is_the_cause() -> None:
    def raised(number: int, at_ns: int) -> RankOutcome:
        error = Raised(part="backward", kind="ValueError", message=f"of {number}")
        return rank(number, outcome=plain(raised=error), ended_ns=at_ns)

    cause = merged([raised(0, 20), raised(1, 10)]).raised
    assert cause is not None
    assert cause.message == "on rank 1 of 2: of 1"


def test_memory_is_that_of_the_runs_under_probes() -> None:
    (first, _) = found().ranks
    assert (first.plain_peak_bytes, first.checkpointed_peak_bytes) == (100, 90)
    assert first.device == "cpu"
    on_gpus = sharded(runs(), WORLD, "nccl", ()).ranks
    assert [each.device for each in on_gpus] == ["cuda:0", "cuda:1"]
    watched = replace(runs(), watched_plain=[rank(0), rank(1, outcome=plain(peak_bytes=120))])
    together = watched.outcomes().watched_plain
    assert together is not None
    assert together.peak_bytes == 120
    assert replace(runs(), watched_plain=()).outcomes().watched_plain is None


def test_collectives_have_their_kind_and_both_counts() -> None:
    assert found().ranks[0].collectives == (
        CollectiveCount(
            operation="c10d._allgather_base_", kind="gather", plain_count=9, checkpointed_count=9
        ),
        CollectiveCount(
            operation="c10d._reduce_scatter_base_",
            kind="reduction",
            plain_count=5,
            checkpointed_count=5,
        ),
    )


@pytest.mark.parametrize(
    ("strict", "verdict"), [(False, VerifyVerdict.EQUIVALENT), (True, VerifyVerdict.DIFFERENT)]
)
def test_what_sharding_changes_is_a_warning_unless_strict(
    strict: bool, verdict: VerifyVerdict
) -> None:
    ranks = found(against=(NOT_REDUCED,))
    by_facet = {each.facet: each for each in ranks.against_unsharded}
    gradients = by_facet[Facet.PARAMETER_GRADIENTS]
    assert (gradients.value, gradients.severity) == (FacetValue.DIFFERENT, FacetSeverity.WARNING)
    assert gradients.names == ("rank 0 w",)
    assert by_facet[Facet.OUTPUTS].severity is FacetSeverity.INFORMATION
    whole = with_ranks(report(runs().outcomes()), ranks, notes=["a note"], strict=strict)
    assert whole.verdict is verdict
    assert whole.warnings[-1].startswith("The plain sharded run is not what one process gives")
    assert whole.assumptions[-1] == "a note"
    assert whole.evidence is not None
    assert not any("fully_shard" in sentence for sentence in whole.evidence.proves)


def test_ranks_that_give_what_one_process_gives_say_so() -> None:
    whole = with_ranks(report(runs().outcomes()), found(), notes=(), strict=True)
    assert whole.verdict is VerifyVerdict.EQUIVALENT
    assert whole.evidence is not None
    assert any("fully_shard on 2 ranks" in sentence for sentence in whole.evidence.proves)
    assert any("gloo" in sentence for sentence in whole.evidence.does_not_prove)


def test_predicted_peaks_stand_beside_each_rank_with_what_they_stand_on() -> None:
    said = Predicted(
        plain_bytes=(5, 6), checkpointed_bytes=(3, 4), basis=Basis.SIMULATED, method="a trace"
    )
    ranks = with_predicted(found(), said)
    assert [each.predicted_plain_peak_bytes for each in ranks.ranks] == [5, 6]
    assert [each.predicted_checkpointed_peak_bytes for each in ranks.ranks] == [3, 4]
    assert (ranks.prediction_basis, ranks.prediction_method) == (Basis.SIMULATED, "a trace")
    none = with_predicted(found(), Predicted(method="nothing was predicted"))
    assert {each.predicted_plain_peak_bytes for each in none.ranks} == {None}
    assert none.prediction_method == "nothing was predicted"


def test_the_place_is_that_of_the_rank_which_has_one() -> None:
    at = FirstDifference(region="block", detail="an operation")
    traced = [rank(0), rank(1, outcome=plain(first_difference=at))]
    outcome = replace(runs(), traced=traced).outcomes().traced
    assert outcome is not None
    assert outcome.first_difference == replace(at, detail="on rank 1 of 2: an operation")


@pytest.mark.parametrize("schedule", [VerifySchedule.ONE_MICROBATCH, VerifySchedule.TWO_STEPS])
def test_a_step_on_shards_is_evidence_only_where_one_was_made(schedule: VerifySchedule) -> None:
    stepped = replace(report(runs().outcomes()), schedule=schedule)
    whole = with_ranks(stepped, found(), notes=[], strict=False)
    assert whole.evidence is not None
    says = any("step on shards" in sentence for sentence in whole.evidence.does_not_prove)
    assert says is (schedule is VerifySchedule.ONE_MICROBATCH)


def of_plan(number: int, peak_bytes: int) -> RankOutcome:
    applied = VerifyApplied(measured_peak_bytes=peak_bytes, peak_at=f"rank {number}")
    return RankOutcome(rank=number, outcome=Outcome(stage="planned", applied=applied))


def test_the_fullest_rank_is_held_against_the_plan_and_each_has_its_own_peak() -> None:
    measured = replace(runs(), planned=[of_plan(0, 5), of_plan(1, 9)])
    planned = measured.outcomes().planned
    assert planned is not None
    assert planned.applied is not None
    assert planned.applied.peak_at == "rank 1"
    peaks = [each.planned_peak_bytes for each in sharded(measured, WORLD, "gloo", ()).ranks]
    assert peaks == [5, 9]


def test_a_rank_that_raises_in_a_planned_step_leaves_no_peak_of_any() -> None:
    raised = Raised(part="a measured step", kind="ValueError", message="two")
    lost = RankOutcome(rank=1, outcome=Outcome(stage="planned", raised=raised))
    measured = replace(runs(), planned=[of_plan(0, 5), lost])
    planned = measured.outcomes().planned
    assert planned is not None
    assert (planned.applied, str(planned.raised)) == (None, "ValueError: two")
