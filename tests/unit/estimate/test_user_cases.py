"""What users saw, to the digit that they wrote: each figure of a thread is one of ours."""

import pytest
from tests.bench.estimate_rows import rows
from tests.bench.estimate_users import FIGURES, Figure


@pytest.mark.parametrize("figure", FIGURES, ids=lambda each: f"{each.case}: {each.what}")
def test_the_figure_that_a_user_saw(figure: Figure) -> None:
    assert figure.ours() == pytest.approx(figure.seen, abs=figure.last_digit / 2 * (1 + 1e-9))


def test_every_derived_case_has_a_figure() -> None:
    assert {row["id"] for row in rows("user_cases.json")} == {figure.case for figure in FIGURES}
