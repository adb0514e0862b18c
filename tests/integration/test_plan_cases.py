"""A sample of the planner's bench: plans with segments, executed, stay within their budgets."""

import pytest

pytest.importorskip("torch", reason="plans are executed by PyTorch")
pytest.importorskip("transformers", reason="the models are those of transformers")

from tests.bench.plan_cases import cases_of, subjects


@pytest.mark.slow
def test_executed_peaks_are_within_the_budgets_and_gradients_equal() -> None:
    (subject,) = subjects(["resnet 16 blocks"])
    found = list(cases_of(subject, (0.2,)))
    assert [case.rung for case in found] == ["ceiling", "ceiling", "segments"]
    assert all(case.holds and case.is_exact and case.ratio >= 1 for case in found)
