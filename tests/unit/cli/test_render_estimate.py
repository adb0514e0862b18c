"""An estimate on its page."""

import dataclasses

from tests.unit.cli.samples import ESTIMATE, GIB, REQUEST, drawn

from haversack.cli.render.estimate import draw_estimate
from haversack.estimate import (
    Estimate,
    EstimateRequest,
    Moment,
    Term,
    TermCategory,
)
from haversack.requests import estimate_request


def test_an_estimate_begins_with_its_verdict() -> None:
    text = drawn(draw_estimate, REQUEST, ESTIMATE, False)
    assert text.startswith("DOES NOT FIT  the peak of 105.00 GiB (94.50 GiB to 115.50 GiB)")


def test_an_estimate_shows_kinds_of_bytes_and_the_limit() -> None:
    lines = drawn(draw_estimate, REQUEST, ESTIMATE, False).splitlines()
    rows = {
        line.split()[0]: line.split() for line in lines if line.startswith("  ") and line.strip()
    }
    assert rows["device"][1:7] == ["94.50", "GiB", "105.00", "GiB", "115.50", "GiB"]
    assert rows["usable"][1:3] == ["80.00", "GiB"]


def test_terms_are_sorted_with_their_share_and_what_divides_them() -> None:
    text = drawn(draw_estimate, REQUEST, ESTIMATE, False)
    logits = text.index("  logits  ")
    parameters = text.index("  parameters  ")
    assert logits < parameters
    assert "80%" in text[logits:parameters]
    assert "dp_shard=8" in text[parameters:]
    assert "does not shrink with more GPUs: 80.00 GiB, 80%" in text
    assert "at other moments only: reduce buffers (1.00 GiB)" in text


def test_steps_1_and_2_stand_side_by_side() -> None:
    lines = drawn(draw_estimate, REQUEST, ESTIMATE, False).splitlines()
    (backward,) = [line for line in lines if line.startswith("  backward ")]
    assert "85.00 GiB  100.00 GiB" in backward


def test_advice_variations_ranks_and_gaps_are_shown() -> None:
    text = drawn(draw_estimate, REQUEST, ESTIMATE, False)
    for expected in (
        "fewest GPUs of this kind: 64; no microbatch fits as it is",
        "-50.00 GiB  a forward more",
        "-  optimizer: AdamW",
        "-  documents[0].rope_theta",
        "-  evaluation",
        "request 0123456789ab",
        "stage 1",
    ):
        assert expected in text
    (variation,) = [line for line in text.splitlines() if line.startswith("  zero=2")]
    assert "TIGHT" in variation
    assert "70.00 GiB  -30.00 GiB" in variation


def test_verbose_adds_the_timeline_and_the_sources() -> None:
    short = drawn(draw_estimate, REQUEST, ESTIMATE, False)
    long = drawn(draw_estimate, REQUEST, ESTIMATE, True)
    for expected in ("Timeline", "ZeRO paper (SC20), section 3.1", "parameters = 8030261248"):
        assert expected not in short
        assert expected in long


def test_thousands_of_units_show_their_first_and_last_windows() -> None:
    moments = tuple(
        Moment(phase="step 1 forward", name=f"window {place}", allocated_bytes=1, term_bytes=(1, 1))
        for place in range(3000)
    )
    answer = Estimate(
        terms=(
            Term(name="shards", category=TermCategory.PARAMETER, bytes=1),
            Term(name="gathered", category=TermCategory.TRANSIENT, bytes=1, largest_bytes=1),
        ),
        timeline=moments,
    )
    request = estimate_request(units=[{"name": "a", "parameter_count": 1}])
    text = drawn(draw_estimate, request, answer, False)
    shown = [moment.name for moment in moments if f" {moment.name} " in text]
    assert shown == [f"window {place}" for place in (*range(20), *range(2980, 3000))]
    assert "... 2960 more; --verbose shows them" in " ".join(text.split())
    verbose = drawn(draw_estimate, request, answer, True)
    assert all(f" {moment.name} " in verbose for moment in moments)
    assert "more; --verbose" not in verbose


def test_units_show_their_gather_windows_as_idealised() -> None:
    request = estimate_request(units=[{"name": "a", "parameter_count": 1000}], gpus=4, zero=3)
    answer = Estimate(
        steady_bytes=4000,
        terms=(
            Term(name="parameters", category=TermCategory.PARAMETER, bytes=500, largest_bytes=500),
            Term(
                name="gathered unit",
                category=TermCategory.TRANSIENT,
                bytes=2000,
                largest_bytes=2000,
            ),
        ),
        timeline=(
            Moment(phase="init", name="init", allocated_bytes=500, term_bytes=(500, 0)),
            Moment(
                phase="step 1 forward",
                name="forward a",
                allocated_bytes=2500,
                term_bytes=(500, 2000),
            ),
        ),
    )
    text = drawn(draw_estimate, request, answer, False)
    assert text.startswith("STEADY  3.91 KiB of model states on each rank, not a peak")
    assert "Gather windows, moment by moment  idealised, not a measurement" in text
    (window,) = [line for line in text.splitlines() if "forward a  " in line]
    assert window.split() == ["1", "forward", "a", "2.44", "KiB", "1.95", "KiB"]


def test_a_subject_without_a_peak_or_a_verdict_is_still_drawn() -> None:
    request = estimate_request(parameter_count=0)
    assert drawn(draw_estimate, request, Estimate(), True).startswith("STEADY  0 B")


def test_long_names_fold() -> None:
    term = Term(name="x" * 100, category=TermCategory.ACTIVATION, bytes=GIB)
    answer = dataclasses.replace(ESTIMATE, terms=(term,))
    text = drawn(draw_estimate, REQUEST, answer, False)
    assert text.count("x") >= 100
    assert "1.00 GiB" in text


def test_the_request_is_not_needed_to_draw_what_another_subject_answers() -> None:
    request: EstimateRequest = estimate_request(state_bytes="4GiB,4GiB,8GiB", gpus=4, zero=1)
    answer = Estimate(steady_bytes=10 * GIB, reason="no verdict")
    assert "10.00 GiB of model states on each rank, not a peak" in drawn(
        draw_estimate, request, answer, False
    )
