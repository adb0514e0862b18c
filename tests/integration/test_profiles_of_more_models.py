"""Plans of profiled models with skips, encoders, frozen parameters and norms, when executed.

The executed peak is within the budget and close below the predicted one, and gradients are those of
the plain step to the bit.
"""

from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are profiled")
pytest.importorskip("transformers", reason="the models are those of transformers")

import torch
from tests.integration.profiled_models import workload_of
from tests.integration.test_profiles import execute, planned, ratios_of_segments, states_bytes

from haversack.errors import NotSupportedError
from haversack.plan import PlanStatus
from haversack.torch import Workload, apply, profile
from haversack.torch.regions import caching_configs

MOST = 1.10  # of the predicted peak over the executed one


def without_cache(workload: Workload) -> Workload:
    model: Any = workload.model
    for config in list(caching_configs(model)):
        config.use_cache = False
    return workload


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unet", "normed", "lora", "t5", "vit"])
def test_plans_hold_their_budget_and_change_no_gradient(kind: str) -> None:
    workload = without_cache(workload_of(kind))
    model: Any = workload.model
    found, buffers = profile(workload), dict(model.named_buffers())
    before = {name: each.clone() for name, each in buffers.items()}
    plain = execute(workload)
    after = {name: each.clone() for name, each in buffers.items()}
    for point in planned(found, 2**40).frontier:
        answer = planned(found, point.budget_bytes)
        assert answer.status is PlanStatus.OPTIMAL
        for name, each in buffers.items():
            each.copy_(before[name])
        with apply(model, answer):
            executed = execute(workload)
        assert answer.predicted_peak_bytes is not None
        predicted = answer.predicted_peak_bytes - states_bytes(found)
        assert executed.peak_bytes <= predicted <= MOST * executed.peak_bytes
        assert torch.equal(executed.loss, plain.loss)
        assert all(map(torch.equal, executed.gradients, plain.gradients))
        assert all(torch.equal(each, after[name]) for name, each in buffers.items())
    if kind in ("lora", "t5", "vit"):  # in the others something lies between any two blocks
        ratios = list(ratios_of_segments(workload, found))
        assert len(ratios) > 2
        assert 1 <= min(ratios) <= max(ratios) <= MOST


def test_blocks_with_a_batch_norm_are_saved_and_the_others_have_a_choice() -> None:
    found = profile(workload_of("normed"))
    options = {each.name: found.tables[each.table].option for each in found.blocks}
    assert options["blocks.0"] == options["blocks.2"] == ("save",)
    assert "recompute" in options["blocks.1"]


def experts(implementation: str) -> Workload:
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=2,
        experts_implementation=implementation,
    )
    torch.manual_seed(0)
    tokens = torch.arange(64).reshape(2, 32) % 32
    model = transformers.MixtralForCausalLM(config).train()
    return without_cache(Workload(model, kwargs={"input_ids": tokens, "labels": tokens}))


def test_experts_in_a_loop_are_refused() -> None:
    with pytest.raises(NotSupportedError, match=r"layers\.0\.mlp"):
        profile(experts("eager"))


@pytest.mark.slow
def test_experts_in_grouped_products_are_bounded() -> None:
    workload = experts("grouped_mm")
    model: Any = workload.model
    found, plain = profile(workload), execute(workload)
    point = planned(found, 2**40).frontier[1]
    answer = planned(found, point.budget_bytes)
    with apply(model, answer):
        executed = execute(workload)
    assert answer.predicted_peak_bytes is not None
    predicted = answer.predicted_peak_bytes - states_bytes(found)
    assert executed.peak_bytes <= predicted <= MOST * executed.peak_bytes
    assert all(map(torch.equal, executed.gradients, plain.gradients))
