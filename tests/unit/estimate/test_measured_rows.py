"""What ships as evidence is what this version says of the measured runs: ``--fit`` writes it."""

import json

from tests.bench import estimate_bounds, estimate_validated


def shipped(name: str, key: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((estimate_bounds.WRITTEN / name).read_text())[key]
    return found


def test_the_evidence_that_ships_has_this_version_s_figures() -> None:
    assert shipped("rows.json", "rows") == estimate_bounds.evidence()


def test_the_ends_that_ship_are_those_of_this_version_s_misses() -> None:
    fitted = [{**row, "date": ""} for row in estimate_bounds.spreads()]
    assert [{**row, "date": ""} for row in shipped("spreads.json", "spreads")] == fitted


def test_the_list_of_validated_settings_is_that_of_the_measured_runs() -> None:
    found = estimate_validated.validated()
    rows = [{"profile": profile, "settings": settings} for profile, settings in found.items()]
    assert shipped("validated.json", "profiles") == rows
    assert estimate_validated.PAGE.read_text(encoding="utf-8") == estimate_validated.page(found)
