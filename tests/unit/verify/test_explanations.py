"""What a report adds to its findings: controls, probes, places, state that changed."""

from dataclasses import replace

import pytest
from tests.unit.verify.outcomes import (
    MOVED,
    RAISED,
    REQUEST,
    checkpointed,
    plain,
    report,
    runs,
)

from haversack.verify import (
    DifferenceCause,
    Facet,
    FirstDifference,
    RandomSource,
    SavedValues,
    StateChange,
    VerifyVerdict,
)
from haversack_server.verify.comparison import Closeness, Row
from haversack_server.verify.evidence import assumptions
from haversack_server.verify.findings import Outcomes, findings
from haversack_server.verify.places import first_difference, with_state


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ((), "is not the cause alone"),
        ((Row(facet=Facet.OUTPUTS, name="y", closeness=Closeness.DIFFERENT),), "acts without"),
    ],
)
def test_the_control_says_whether_the_callback_is_the_cause(
    rows: tuple[Row, ...], word: str
) -> None:
    evidence = report(replace(runs(), control=plain(rows=rows))).evidence
    assert evidence is not None
    assert any(word in sentence for sentence in evidence.proves)


def test_random_sources_come_from_the_watched_run_and_memory_where_no_other_has_it() -> None:
    source = RandomSource(source="python", drawn_in_forward=True)
    watched = checkpointed(peak_bytes=5, retained_bytes=4, sources=(source,))
    watched_plain = plain(peak_bytes=7)
    unmeasured = runs(first=plain(peak_bytes=None), peak_bytes=None)  # as on the CPU
    for outcomes, peaks in ((unmeasured, (7, 5)), (runs(), (100, 90))):  # as on a GPU
        found = report(replace(outcomes, watched_plain=watched_plain, watched=watched))
        assert found.random_sources == (source,)
        assert found.memory is not None
        assert (found.memory.plain_peak_bytes, found.memory.checkpointed_peak_bytes) == peaks


def test_where_no_operation_differs_the_state_that_changed_is_the_place() -> None:
    checkpointed = plain(state={"model.n": "2"}, rows=(MOVED,))
    runs = Outcomes(plain=plain(), again=plain(), checkpointed=checkpointed, traced=plain())
    found = first_difference(runs, findings(runs))
    assert found is not None
    assert (found.region, found.cause) == ("block", DifferenceCause.STATE_ONLY)
    assert "model.n" in found.detail
    unmoved = replace(runs, checkpointed=plain(rows=(MOVED,)))
    assert first_difference(unmoved, findings(unmoved)) is None


def test_a_first_difference_names_the_state_that_its_region_found_changed() -> None:
    place = FirstDifference(region="block", cause=DifferenceCause.SCALAR_ARGUMENT, detail="[2]")
    change = StateChange(region="block", name="model.n", before="1", after="2")
    others = [replace(change, region="other"), replace(change, name="log", by_replay=True)]
    told = with_state(place, [*others, change])
    assert told is not None
    assert told.detail == "[2]; changed since its forward: model.n (1, then 2)"
    assert with_state(place, others) is place
    random = replace(place, cause=DifferenceCause.RNG)
    assert with_state(random, [change]) is random
    assert with_state(None, [change]) is None


def test_probes_are_reported_and_what_they_could_not_do_is_said() -> None:
    saved = SavedValues(region="block", saved_count=3, compared_count=3)
    change = StateChange(region="block", name="model.n", before="1", after="2")
    watched = checkpointed(saved=(saved,), changes=(change,), probe_notes=("no place",))
    found = report(replace(runs(), watched=watched))
    assert found.saved_values == (saved,)
    assert found.state_changes == (change,)
    assert "no place" in found.assumptions


def test_a_report_names_the_weights_it_was_given_and_counts_regions_in_words() -> None:
    one = replace(runs(), checkpointed=checkpointed(wrapped=("block",)))
    said = assumptions(one, replace(REQUEST, weights="/models/tiny"))
    assert "Every run has the weights of /models/tiny" in said
    assert any(each.startswith("The region is 1 module that Verify wrapped") for each in said)
    assert not any("weights" in each for each in assumptions(one, REQUEST))


@pytest.mark.parametrize(
    ("different", "said"),
    [(0, "the replays of all 1 regions saved the values"), (1, "in 1 of 1 regions: block")],
)
def test_where_plain_runs_differ_replays_are_still_held_against_forwards(
    different: int, said: str
) -> None:
    saved = SavedValues(region="block", compared_count=3, different_count=different)
    unsteady = plain(rows=(MOVED,))
    found = report(replace(runs(again=unsteady), watched=checkpointed(saved=(saved,))))
    assert found.verdict is VerifyVerdict.INCONCLUSIVE
    assert found.evidence is not None
    assert said in found.evidence.proves[-1]


def test_a_probe_that_breaks_the_run_is_said() -> None:
    watched = checkpointed(raised=RAISED)
    found = report(replace(runs(), watched=watched))
    assert found.verdict is VerifyVerdict.EQUIVALENT
    assert any("raised under probes, in backward" in sentence for sentence in found.assumptions)
