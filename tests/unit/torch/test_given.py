"""What a first script hands in wrongly is refused in one sentence that says what would do."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="the functions take PyTorch's models")

import torch

from haversack.errors import InvalidRequestError
from haversack.plan import Plan
from haversack.torch import Workload, apply, certify, measure, profile

MODEL: Any = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
WORKLOAD = Workload(MODEL, args=(torch.zeros(1, 2),), optimizer=torch.optim.SGD(MODEL.parameters()))
OTHER: Any = "plan.json"  # what no type checker would let pass
NUMBER: Any = 2

CASES: list[tuple[Callable[[], object], str, str]] = [
    (lambda: profile(MODEL), "workload", r"a Sequential is no Workload; .*Workload\(model, args="),
    (lambda: profile(WORKLOAD, blocks=OTHER), "blocks", "'plan.json' is not a list"),
    (lambda: profile(WORKLOAD, blocks=[NUMBER]), "blocks", "2 .* is not a string"),
    (lambda: profile(WORKLOAD, device="tpu"), "device", "'tpu' is no device .* cpu or cuda"),
    (lambda: profile(WORKLOAD, precision="fp8"), "precision", "give 'fp32-bf16-compute'"),
    (lambda: apply(MODEL, OTHER), "plan", r"'plan.json' is no Plan; .*haversack\.read_plan"),
    (lambda: certify(WORKLOAD, OTHER), "plan", r"haversack\.read_plan"),
    (lambda: certify(MODEL, Plan()), "workload", "a Sequential is no Workload"),
    (lambda: certify(WORKLOAD, Plan(), microbatches=0), "microbatches", "1 or more"),
    (lambda: measure(WORKLOAD, plan=OTHER), "plan", r"haversack\.read_plan"),
]


@pytest.mark.parametrize(("ask", "field", "sentence"), CASES)
def test_what_is_handed_in_wrongly_is_refused_with_what_would_do(
    ask: Callable[[], object], field: str, sentence: str
) -> None:
    with pytest.raises(InvalidRequestError, match=sentence) as caught:
        ask()
    assert caught.value.field == field


def test_a_precision_is_taken_by_its_name() -> None:
    named = profile(WORKLOAD, precision="fp32-bf16-compute")
    assert named.precision.name == "FP32_BF16_COMPUTE"
    assert named.blocks
