"""From the outcomes of runs to one finding per facet, and to a whole report."""

from dataclasses import replace

import pytest
from tests.unit.verify.outcomes import (
    MOVED,
    RAISED,
    plain,
    report,
    runs,
    values,
)

from haversack.verify import (
    Facet,
    FacetValue,
    FailureReason,
    VerifyVerdict,
)
from haversack_server.verify import reports
from haversack_server.verify.findings import (
    Outcomes,
    findings,
    is_unexplained,
    repeats,
)
from haversack_server.verify.outcome import Outcome, RegionCount


def test_every_facet_has_a_finding() -> None:
    found = values(runs())
    assert list(found) == [facet for facet in Facet if Facet.UNSPECIFIED < facet <= Facet.TIME]
    assert set(found.values()) == {
        FacetValue.EQUAL_BITWISE,
        FacetValue.NOT_CHECKED,  # no input asks for a gradient
        FacetValue.AS_EXPECTED,
    }


def test_a_row_makes_its_facet_differ() -> None:
    found = values(runs(rows=(MOVED,)))
    assert found[Facet.BUFFERS] is FacetValue.DIFFERENT
    assert found[Facet.OUTPUTS] is FacetValue.EQUAL_BITWISE


def test_a_generator_in_another_state_is_named() -> None:
    result = findings(runs(rng={"torch cpu": "a", "python": "other"}))[4]
    assert (result.facet, result.value) == (Facet.RNG, FacetValue.DIFFERENT)
    assert result.names == ("python",)
    assert "torch" in result.fix_hint


def test_generators_that_two_plain_runs_do_not_share_are_inconclusive() -> None:
    unsteady = plain(rng={"torch cpu": "a", "python": "c"})
    assert values(runs(again=unsteady))[Facet.RNG] is FacetValue.INCONCLUSIVE


def test_a_side_effect_says_what_it_was_in_both_steps() -> None:
    result = findings(runs(state={"model.n": "2"}))[5]
    assert result.value is FacetValue.DIFFERENT
    assert "model.n: 1 after the plain step, 2 after the checkpointed step" in result.detail


@pytest.mark.parametrize(
    ("told", "facet", "value"),
    [
        ("as it was", Facet.PARAMETER_GRADIENTS, FacetValue.EQUAL_BITWISE),
        ("changed", Facet.PARAMETER_GRADIENTS, FacetValue.DIFFERENT),
        ("as it was", Facet.BUFFERS, FacetValue.DIFFERENT),
    ],
)
def test_a_weight_is_no_side_effect_where_an_optimizer_moved_it_by_another_gradient(
    told: str, facet: Facet, value: FacetValue
) -> None:
    first = plain(own_changes={"model.n": "as it was"})
    row = replace(MOVED, facet=facet)
    moved = {"state": {"model.n": "2"}, "own_changes": {"model.n": told}}
    answers = findings(runs(first=first, again=first, rows=(row,), **moved))
    assert answers[5].value is value


def test_a_truncated_probe_is_not_called_equal() -> None:
    assert values(runs(truncated=True))[Facet.SIDE_EFFECTS] is FacetValue.TRUNCATED


def test_a_difference_that_only_warns_does_not_hide_a_truncated_probe() -> None:
    answer = report(runs(truncated=True, state={"model.n": "2"}))
    effects = answer.facets[5]
    assert (effects.value, effects.names) == (FacetValue.TRUNCATED, ("model.n",))
    assert "stopped before it had seen everything: 1 of 1 things differ" in effects.detail
    assert answer.verdict is VerifyVerdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("entries", "value"),
    [
        (1, FacetValue.NOT_RECOMPUTED),
        (2, FacetValue.AS_EXPECTED),
        (3, FacetValue.DIFFERENT),
    ],
)
def test_entries_are_judged_against_what_is_expected(entries: int, value: FacetValue) -> None:
    count = RegionCount(region="block", entries=entries, completions=1, expected_entries=2)
    assert values(runs(regions=(count,)))[Facet.RECOMPUTE_COUNTS] is value


@pytest.mark.parametrize(
    ("peak", "retained", "value"),
    [
        (99, 80, FacetValue.AS_EXPECTED),
        (100, 79, FacetValue.AS_EXPECTED),
        (100, 80, FacetValue.DIFFERENT),
        (120, 90, FacetValue.DIFFERENT),
    ],
)
def test_memory_is_saved_if_the_peak_or_what_is_retained_is_lower(
    peak: int, retained: int, value: FacetValue
) -> None:
    found = values(runs(peak_bytes=peak, retained_bytes=retained))
    assert found[Facet.MEMORY] is value


def test_memory_that_was_not_measured_is_not_checked() -> None:
    assert values(runs(peak_bytes=None))[Facet.MEMORY] is FacetValue.NOT_CHECKED


def test_memory_is_told_with_its_units() -> None:
    found = runs(first=plain(peak_bytes=3 * 2**20), peak_bytes=2**20, retained_bytes=2048)
    assert findings(found)[7].detail == (
        "Live peak 3.00 MiB plain, 1.00 MiB checkpointed; between forward and backward 80 B and "
        "2.00 KiB"
    )


@pytest.mark.parametrize(
    ("plain_ns", "tick_ns", "value"),
    [
        (0, 1, FacetValue.NOT_CHECKED),
        (0, 0, FacetValue.NOT_CHECKED),
        (4_000_000, 4_000_000, FacetValue.NOT_CHECKED),
        (7_999_999, 4_000_000, FacetValue.NOT_CHECKED),
        (8_000_000, 4_000_000, FacetValue.AS_EXPECTED),
        (10, 1, FacetValue.AS_EXPECTED),
    ],
)
def test_a_step_that_its_clock_does_not_see_is_too_short_to_time(
    plain_ns: int, tick_ns: int, value: FacetValue
) -> None:
    short = plain(time_ns=plain_ns, tick_ns=tick_ns)
    found = findings(runs(first=short, again=short, time_ns=4_004_620))[8]
    assert (found.facet, found.value) == (Facet.TIME, value)
    assert ("too short to time" in found.detail) is (value is FacetValue.NOT_CHECKED)


def test_checkpointing_is_not_said_to_change_what_plain_runs_do_not_show() -> None:
    count = RegionCount(region="block", entries=3, completions=1, expected_entries=2)
    costly = report(runs(peak_bytes=100, retained_bytes=80, regions=(count,), state={"n": "2"}))
    assert costly.facet(Facet.MEMORY).value is FacetValue.DIFFERENT
    assert costly.facet(Facet.RECOMPUTE_COUNTS).value is FacetValue.DIFFERENT
    assert costly.evidence is not None
    (changed,) = [each for each in costly.evidence.proves if "is what changes" in each]
    assert changed.endswith("is what changes side effects")
    nothing = report(runs(peak_bytes=100, retained_bytes=80)).evidence
    assert nothing is not None
    assert not any("is what changes" in each for each in nothing.proves)


def test_no_sentence_of_a_report_ends_with_a_period() -> None:
    moved = (report(runs()), report(runs(rows=(MOVED,), state={}, rng={}, raised=RAISED)))
    unsteady = report(runs(again=plain(state={"model.n": "3", "m": "1"}), state={"k": "2"}))
    for found in (*moved, unsteady):
        assert found.evidence is not None
        said = [each.detail for each in found.facets] + [each.fix_hint for each in found.facets]
        said += [*found.assumptions, *found.evidence.proves, *found.evidence.does_not_prove]
        assert not [sentence for sentence in said if sentence.endswith(".")]


def test_a_replay_that_raises_leaves_the_outputs_compared() -> None:
    found = values(runs(raised=RAISED))
    assert found[Facet.OUTPUTS] is FacetValue.EQUAL_BITWISE
    assert found[Facet.PARAMETER_GRADIENTS] is FacetValue.RAISED_ONLY_CHECKPOINTED
    assert found[Facet.BUFFERS] is FacetValue.NOT_CHECKED
    assert found[Facet.RNG] is FacetValue.NOT_CHECKED


def test_a_forward_that_raises_leaves_nothing_compared() -> None:
    found = values(runs(raised=replace(RAISED, part="forward")))
    assert found[Facet.OUTPUTS] is FacetValue.RAISED_ONLY_CHECKPOINTED


def test_plain_runs_that_raise_alone_are_different() -> None:
    raising = plain(raised=RAISED)
    found = report(runs(first=raising, again=raising))
    assert found.verdict is VerifyVerdict.DIFFERENT
    assert found.facet(Facet.PARAMETER_GRADIENTS).value is FacetValue.RAISED_ONLY_PLAIN
    assert "ValueError: no" in found.facet(Facet.PARAMETER_GRADIENTS).detail
    assert found.memory is None
    assert found.time is None


def test_one_plain_run_that_raises_and_one_that_does_not_are_inconclusive() -> None:
    assert report(runs(again=plain(raised=RAISED))).verdict is VerifyVerdict.INCONCLUSIVE
    assert report(runs(first=plain(raised=RAISED))).verdict is VerifyVerdict.INCONCLUSIVE


def test_a_workload_that_raises_both_ways_has_no_comparison() -> None:
    failure = reports.raised_in_both(runs(first=plain(raised=RAISED), raised=RAISED))
    assert failure is not None
    assert failure.reason is FailureReason.WORKLOAD_RAISED
    assert "ValueError: no" in failure.message


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (plain(is_lost=True, exit_status=-9), FailureReason.WORKER_LOST),
        (plain(is_lost=True), FailureReason.WORKER_LOST),
        (plain(bad_workload="no loss"), FailureReason.BAD_WORKLOAD),
        (plain(raised=replace(RAISED, out_of_memory=True)), FailureReason.OUT_OF_MEMORY),
        (plain(raised=replace(RAISED, device_fault=True)), FailureReason.DEVICE_FAULT),
    ],
)
def test_a_run_without_a_result_ends_the_job(outcome: Outcome, reason: FailureReason) -> None:
    failure = reports.failure_of(outcome)
    assert failure is not None
    assert failure.reason is reason
    assert failure.stage == "plain"


def test_an_exception_of_the_workload_is_no_end_of_the_job() -> None:
    assert reports.failure_of(plain(raised=RAISED)) is None


@pytest.mark.parametrize(
    ("outcomes", "traced"),
    [
        (runs(), False),
        (runs(state={}), False),
        (runs(rng={"python": "b"}), True),
        (runs(raised=RAISED), True),
        (runs(first=plain(raised=RAISED), raised=RAISED), False),
        (runs(rows=(MOVED,)), True),
        (runs(rows=(MOVED,), again=plain(rows=(MOVED,))), False),
    ],
)
def test_a_trace_is_run_where_values_or_random_states_differ(
    outcomes: Outcomes, traced: bool
) -> None:
    assert is_unexplained(outcomes) is traced


def test_how_a_process_ended_is_said_in_words() -> None:
    assert reports.ended(3) == "ended with exit code 3"
    assert reports.ended(-9) == "was ended by signal 9 (SIGKILL)"
    assert reports.ended(-123) == "was ended by signal 123 (unknown)"


def test_a_cpu_run_is_never_sold_as_evidence_for_a_gpu() -> None:
    evidence = report(runs()).evidence
    assert evidence is not None
    assert any("GPU" in sentence for sentence in evidence.does_not_prove)
    assert not any("GPU" in sentence for sentence in evidence.proves)


def test_gradients_that_are_all_zero_prove_little() -> None:
    evidence = report(runs(first=plain(gradients_all_zero=True))).evidence
    assert evidence is not None
    assert any("zero" in sentence for sentence in evidence.does_not_prove)


@pytest.mark.parametrize(
    ("again", "same"),
    [
        (plain(), True),
        (plain(rows=(MOVED,)), False),
        (plain(raised=RAISED), False),
        (plain(rng={}), False),
        (plain(state={"model.n": "2"}), False),
    ],
)
def test_a_plain_run_repeats_another_in_all_that_is_looked_at(again: Outcome, same: bool) -> None:
    assert repeats(plain(), again) is same
