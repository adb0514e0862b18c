"""Sections of the planner's page: kept, read back, and put together in one order."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.bench import plan_parts
from tests.bench.table import Row, at_most

MACHINE = {"cpu": "one", "load": "0.1"}


def rows() -> Iterator[Row]:
    yield Row("first", "a figure", 2.5, "s")
    yield at_most("first", "a gated figure", 1, 3, "cases")


def part(section: str, described: Mapping[str, str] = MACHINE) -> plan_parts.Part:
    return plan_parts.run(section, rows, described)


def test_a_section_is_read_back_as_it_was_kept(tmp_path: Path) -> None:
    found = part("first")
    plan_parts.keep(tmp_path / "parts", found)
    assert plan_parts.kept(tmp_path / "parts", ["first"]) == [found]
    assert found.rows == tuple(rows())
    with pytest.raises(SystemExit, match="has no second"):
        plan_parts.kept(tmp_path / "parts", ["first", "second"])


def test_what_a_run_missed_is_said_when_its_section_runs_again(tmp_path: Path) -> None:
    def missing() -> Iterator[Row]:
        yield at_most("first", "a gated figure", 4, 3, "cases")

    plan_parts.keep(tmp_path, plan_parts.run("first", missing, MACHINE))
    plan_parts.keep(tmp_path, part("first"))
    plan_parts.keep(tmp_path, part("first"))
    found = plan_parts.kept(tmp_path, ["first"])
    assert found[0].missed_before == ("a gated figure: 4.00 cases",)
    assert any(
        "run again: first, a gated figure: 4.00 cases" in line for line in plan_parts.said(found)
    )


def test_sections_of_one_machine_have_their_own_loads_and_times() -> None:
    found = plan_parts.machine_of([part("first"), part("second", {**MACHINE, "load": "9"})])
    assert found["cpu"] == "one"
    assert found["load before"].startswith("first ")
    assert "second" in found["seconds (of CPU)"]
    with pytest.raises(SystemExit, match="second ran on another machine than first"):
        plan_parts.machine_of([part("first"), part("second", {"cpu": "another"})])
