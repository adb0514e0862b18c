"""What stays allocated between two steps: what a user reads off after a step, and no more."""

import json

import pytest

from haversack.estimate import Estimate, EstimateRequest
from haversack.parallelism import Parallelism, PipelineSchedule
from haversack.run import Device, Document, DocumentFormat, Precision, Training
from haversack_server.estimate.answer import estimate
from haversack_server.memory.kernel_profile import load

MIB = 2**20
CONFIG = json.dumps(
    {
        "model_type": "llama",
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 512,
        "vocab_size": 1000,
        "tie_word_embeddings": False,
    }
)


def answer(profile: str, parallelism: Parallelism = Parallelism()) -> Estimate:
    request = EstimateRequest(
        documents=(Document(format=DocumentFormat.HF_CONFIG, text=CONFIG),),
        training=Training(
            microbatch=2, seq=64, accumulation=4, precision=Precision.BF16_FP32_MASTER
        ),
        parallelism=parallelism,
        device=Device(name="h200"),
        kernel_profile=profile,
    )
    return estimate(request)


def test_gradients_that_are_freed_do_not_count() -> None:
    (every,) = answer("hf-eager").ranks
    gradients = every.steady_bytes * 2 // 16  # 2 + 2 + 12 bytes for each parameter
    workspaces = load("hf-eager").workspace_hopper_bytes
    assert every.between_steps_bytes == every.steady_bytes - gradients + workspaces


def test_gradients_in_a_buffer_that_stays_do() -> None:
    (every,) = answer("megatron-te").ranks
    assert every.between_steps_bytes == every.steady_bytes + 96 * MIB


@pytest.mark.parametrize(("virtual_stages", "tensors"), [(None, 3), (2, 2 * 2)])
def test_a_stage_that_receives_keeps_residual_streams(
    virtual_stages: int | None, tensors: int
) -> None:
    schedule = PipelineSchedule.INTERLEAVED if virtual_stages else PipelineSchedule.ONE_F_ONE_B
    parallelism = Parallelism(
        world_size=2, pp=2, virtual_stages=virtual_stages, pipeline_schedule=schedule
    )
    last = answer("megatron-te", parallelism).ranks[-1]
    stream = 2 * 64 * 256 * 2
    assert last.between_steps_bytes == last.steady_bytes + 96 * MIB + tensors * stream


def test_workspaces_are_in_the_allocated_peak_and_not_outside() -> None:
    found = answer("hf-eager")
    inside = {term.name: term.bytes for term in found.terms}
    assert inside["workspaces"] == 64 * MIB
    assert found.peak is not None
    assert found.peak.outside.expected_bytes == load("hf-eager").cuda_context_bytes
