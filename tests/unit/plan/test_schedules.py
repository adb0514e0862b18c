"""A plan's predicted peak is Estimate's of its actions, under every sharding schedule."""

from dataclasses import replace
from typing import Any

import pytest

from haversack.estimate import EstimateRequest
from haversack.parallelism import Parallelism, Sharding, WrapPolicy
from haversack.plan import PlanRequest, PlanStatus
from haversack.run import (
    Budget,
    BytesKind,
    Document,
    DocumentFormat,
    Occasion,
    OptimizerKernel,
    Training,
)
from haversack_server.estimate.answer import estimate
from haversack_server.plan.answer import plan

SMALL = Document(
    format=DocumentFormat.HF_CONFIG,
    text="""{"model_type": "llama", "hidden_size": 512, "intermediate_size": 1536,
    "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
    "vocab_size": 1000, "tie_word_embeddings": false}""",
)
TRAINING = Training(
    microbatch=4,
    seq=1024,
    accumulation=2,
    optimizer_kernel=OptimizerKernel.FOREACH,
    occasions=(Occasion.EVALUATION, Occasion.SAVING),
)
SCHEDULES: dict[str, dict[str, Any]] = {
    "DDP": {"sharding": Sharding.REPLICATED, "gradient_as_bucket_view": True},
    "ZeRO 1": {"sharding": Sharding.ZERO_1, "reduce_bucket_elements": 1_000_000},
    "ZeRO 2": {"sharding": Sharding.ZERO_2, "reduce_bucket_elements": 1_000_000},
    "ZeRO 3": {"sharding": Sharding.ZERO_3, "reduce_bucket_elements": 1_000_000},
    "FSDP1": {"sharding": Sharding.FSDP1, "wrap": WrapPolicy.LAYERS},
    "FSDP2": {"sharding": Sharding.FSDP2, "prefetch_units": 2, "layers_per_unit": 2},
    "FSDP2 kept": {"sharding": Sharding.FSDP2, "reshard_after_forward": False},
    "HSDP": {"sharding": Sharding.FSDP2, "dp_replicate": 2, "reshard_ranks": 2},
    "Megatron": {"sharding": Sharding.DISTRIBUTED_OPTIMIZER},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_predicted_peak_is_estimate_s(name: str) -> None:
    parallelism = Parallelism(world_size=8, **SCHEDULES[name])
    run: dict[str, Any] = {"documents": (SMALL,), "parallelism": parallelism}
    saved = estimate(EstimateRequest(training=TRAINING, **run))
    assert saved.peak is not None
    most = saved.peak.allocated.expected_bytes
    floor = plan(PlanRequest(training=TRAINING, budget=_allocated(0), **run)).floor_bytes
    assert floor is not None
    asked = PlanRequest(
        training=TRAINING, budget=_allocated((floor + most) // 2), fit_expected=True, **run
    )
    answer = plan(asked)
    assert answer.status is PlanStatus.OPTIMAL
    assert any(action.option == "recompute" for action in answer.actions)
    same = estimate(EstimateRequest(training=replace(TRAINING, actions=answer.actions), **run))
    assert same.peak is not None
    assert same.peak.allocated.expected_bytes == answer.predicted_peak_bytes
    assert answer.predicted_peak_bytes is not None
    assert answer.predicted_peak_bytes <= (floor + most) // 2


def _allocated(size_bytes: int) -> Budget:
    return Budget(bytes=size_bytes, kind=BytesKind.ALLOCATED)
