"""Ends of intervals from measured rows: where a kind of run takes them from, and what it says."""

from collections.abc import Iterator

import pytest

from haversack_server.memory import kernel_profile, spread
from haversack_server.memory.spread import PLAIN, Spread


def known(
    profile: str, kind: str, low: int, high: int, most_ranks: int = 8, own_cases: int = 5
) -> Spread:
    return Spread(
        profile=profile,
        kind=kind,
        low_permille=low,
        high_permille=high,
        own_cases=own_cases,
        most_ranks=most_ranks,
        cases=7,
        rows=31,
        date="2026-11-29",
    )


@pytest.fixture
def _some_spreads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    found = {
        ("megatron-te", PLAIN): known("megatron-te", PLAIN, 20, 130),
        ("megatron-te", "experts"): known("megatron-te", "experts", 100, 200),
        ("megatron-te", "pipeline"): known("megatron-te", "pipeline", 150, 30, own_cases=2),
        ("hf-eager", "encoder"): known("hf-eager", "encoder", 40, 140, most_ranks=1),
    }
    monkeypatch.setattr(spread, "spreads", lambda: found)
    spread.calibrated.cache_clear()
    yield
    spread.calibrated.cache_clear()


def ends(profile: str, *kinds: str, ranks: int = 2) -> tuple[int, int]:
    found, _ = spread.calibrated(profile, kinds, ranks)
    assert found.name == profile
    return found.margin_low_permille, found.margin_high_permille


@pytest.mark.usefixtures("_some_spreads")
def test_a_kind_with_rows_takes_its_own_ends() -> None:
    assert ends("megatron-te", PLAIN) == (20, 130)
    assert ends("megatron-te", "experts") == (100, 200)


@pytest.mark.usefixtures("_some_spreads")
def test_a_kind_without_rows_takes_the_wider_of_plain_ends_and_the_profile_s_margin() -> None:
    assert ends("megatron-te", "encoder") == (110, 130)
    assert ends("deepspeed", PLAIN) == (110, 110)


@pytest.mark.usefixtures("_some_spreads")
def test_a_kind_of_few_cases_is_no_nearer_than_the_others_that_a_run_is_of() -> None:
    assert ends("megatron-te", "pipeline") == (150, 30)
    assert ends("megatron-te", "pipeline", "experts") == (150, 200)
    assert ends("megatron-te", "experts", "pipeline") == (100, 200)
    assert ends("megatron-te", "encoder", "experts") == (110, 200)
    _, sentence = spread.calibrated("megatron-te", ("pipeline", "experts"), 8)
    assert sentence.endswith("also of the kind 'experts', so - 15 % and + 20 %")
    assert ends("megatron-te", "pipeline", "encoder") == (150, 110)
    _, sentence = spread.calibrated("megatron-te", ("pipeline", "encoder"), 8)
    assert "'encoder', which has no measured rows of its own, so - 15 % and + 11 %" in sentence


@pytest.mark.usefixtures("_some_spreads")
def test_the_sentence_says_what_the_ends_stand_on() -> None:
    _, sentence = spread.calibrated("megatron-te", (PLAIN,), 8)
    assert "expected - 2 % and + 13 %" in sentence
    assert "7 measured cases, 5 of them of this kind (31 rows, 2026-11-29)" in sentence
    assert "measured on up to 8 ranks" in sentence


@pytest.mark.usefixtures("_some_spreads")
def test_what_was_measured_on_one_rank_says_nothing_of_several() -> None:
    assert ends("hf-eager", "encoder", ranks=1) == (40, 140)
    assert ends("hf-eager", "encoder", ranks=2) == (110, 140)
    _, sentence = spread.calibrated("hf-eager", ("encoder",), 2)
    assert "not calibrated: no measured rows of the kind 'encoder' on several ranks" in sentence


@pytest.mark.usefixtures("_some_spreads")
def test_ends_without_rows_are_called_not_calibrated() -> None:
    _, sentence = spread.calibrated("megatron-te", ("encoder",), 1)
    assert "expected - 11 % and + 13 %" in sentence
    assert "not calibrated: no measured rows of the kind 'encoder'" in sentence


def test_the_spreads_that_ship_are_of_known_profiles_and_have_cases() -> None:
    for (profile, kind), found in spread.spreads().items():
        assert profile in kernel_profile.names()
        assert kind == found.kind
        assert 1 <= found.own_cases <= found.cases
        assert found.rows >= found.cases
        assert found.low_permille >= 40
        assert found.high_permille >= 40
