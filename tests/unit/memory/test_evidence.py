"""The measured runs that ship: sourced, of known profiles, and found by nearness of settings."""

import pytest

from haversack_server.memory import evidence, kernel_profile
from haversack_server.memory.evidence import MeasuredRun, measured_runs, nearest

HERE: dict[str, int | str] = {"layers": 8, "tp": 1, "attention": "flash"}


def run(name: str, **settings: int | str) -> MeasuredRun:
    return MeasuredRun(
        id=name,
        source="a table",
        profile="hf-eager",
        measured="peak allocated",
        measured_bytes=10,
        estimated_bytes=11,
        settings={**HERE, **settings},
    )


@pytest.fixture
def _runs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = (
        run("eager", attention="eager"),
        run("half", layers=4),
        run("far", layers=64, tp=8),
        run("same"),
        run("adapters", **{evidence.TRAINED: "part"}),
        run("twice tp", tp=2, layers=4),
    )
    monkeypatch.setattr(evidence, "measured_runs", lambda profile: found)


@pytest.mark.usefixtures("_runs")
def test_the_nearest_run_comes_first_and_says_how_it_differs() -> None:
    found = nearest("hf-eager", HERE)
    assert [each.id for each in found] == ["same", "half", "eager"]
    assert found[0].distance == "the same settings"
    assert found[1].distance == "there layers 4 instead of 8"
    assert found[2].distance == "there attention eager instead of flash"


@pytest.mark.usefixtures("_runs")
def test_evidence_has_both_figures_and_where_they_come_from() -> None:
    (found,) = nearest("hf-eager", HERE, most=1)
    assert (found.measured_bytes, found.estimated_bytes) == (10, 11)
    assert (found.source, found.measured) == ("a table", "peak allocated")


@pytest.mark.usefixtures("_runs")
def test_a_run_with_frozen_weights_is_no_evidence_for_one_without() -> None:
    assert all(each.id != "adapters" for each in nearest("hf-eager", HERE, most=9))
    (found,) = nearest("hf-eager", {**HERE, evidence.TRAINED: "part"})
    assert found.id == "adapters"


def test_a_profile_without_rows_has_no_evidence() -> None:
    assert nearest("paper-2205.05198", HERE) == ()


@pytest.mark.parametrize("profile", kernel_profile.names())
def test_the_rows_that_ship_have_a_source_and_sizes(profile: str) -> None:
    for row in measured_runs(profile):
        assert len(row.source) > 20
        assert row.measured_bytes > 0
        assert row.estimated_bytes > 0
        assert row.settings["layers"]
