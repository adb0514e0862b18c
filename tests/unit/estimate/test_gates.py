"""Gates of Estimate's benchmark that need no torch: whoever moves a figure sees which one."""

import pytest
from tests.bench import (
    estimate_bounds,
    estimate_left_out,
    estimate_measured,
    estimate_megatron,
    estimate_published,
)

SECTIONS = {
    "claimed": estimate_left_out.claimed,
    "unclaimed": estimate_megatron.unclaimed,
    "others": estimate_megatron.others,
    "measured": estimate_measured.peaks,
    "phases": estimate_measured.phases,
    "torchtitan": estimate_published.torchtitan,
    "bounds": estimate_bounds.bounds,
    "negative": estimate_published.negative,
}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_gate_of_the_section_is_reached(section: str) -> None:
    rows = list(SECTIONS[section]())
    assert any(row.reached is not None for row in rows)
    assert [str(row) for row in rows if row.reached is False] == []
