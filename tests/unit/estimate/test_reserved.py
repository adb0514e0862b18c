"""Reserved bytes by a replay: near what was measured, and refused by name where nothing was."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.bench.estimate_measured import measured

from haversack.errors import CallCancelledError
from haversack.estimate import Estimate, EstimateRequest
from haversack.finetuning import Finetuning
from haversack.parallelism import Parallelism, Sharding
from haversack.questions import EstimateQuestion
from haversack.run import Device, Document, DocumentFormat, Precision, Training
from haversack_server.estimate.answer import estimate
from haversack_server.estimate.reserved import REPLAYED
from haversack_server.memory.inputs.settled import settle
from haversack_server.memory.model_run import model_run
from haversack_server.memory.replay import replay
from haversack_server.memory.stopping import never

HF = Path(__file__).parents[2] / "golden" / "hf"
SMALL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "vocab_size": 1000,
}
TRAINING: dict[str, Any] = {"microbatch": 2, "seq": 128, "precision": Precision.BF16}


def asked(parallelism: Parallelism | None = None, profile: str = "", **training: Any) -> Estimate:
    return estimate(_request(parallelism, profile, training))


def _request(
    parallelism: Parallelism | None, profile: str, training: dict[str, Any]
) -> EstimateRequest:
    text = json.dumps(SMALL)
    return EstimateRequest(
        documents=(Document(format=DocumentFormat.HF_CONFIG, text=text),),
        training=Training(**(TRAINING | training)),
        parallelism=parallelism or Parallelism(),
        device=Device(memory_bytes=2**36),
        kernel_profile=profile,
        questions=(EstimateQuestion.ALLOCATOR,),
    )


@pytest.mark.parametrize(
    "name", ["h200-llama-base", "h200-gpt2-recompute", "h200-llama-sgd-momentum"]
)
def test_a_measured_run_reserved_what_its_replay_does(name: str) -> None:
    (found,) = (each for each in measured() if each.row["id"] == name)
    request = settle(found.request).run
    run = model_run(request)
    memory = replay(run, run.choice(request.training), never)
    assert memory.reserved_bytes == pytest.approx(found.row["reserved_bytes"], rel=0.01)
    assert memory.peak_bytes == pytest.approx(found.row["peak_bytes"], rel=0.003)


def test_the_replay_takes_the_place_of_the_factor() -> None:
    answer = asked()
    assert REPLAYED in answer.assumptions
    assert answer.peak is not None
    reserved, device, outside = answer.peak.reserved, answer.peak.device, answer.peak.outside
    assert answer.peak.allocated.expected_bytes <= reserved.expected_bytes < reserved.high_bytes
    assert device.expected_bytes == reserved.expected_bytes + outside.expected_bytes
    assert answer.ranks[0].peak == answer.peak


@pytest.mark.parametrize(
    ("parallelism", "profile", "training", "word"),
    [
        (Parallelism(world_size=2, sharding=Sharding.ZERO_1), "", {}, "several ranks"),
        (Parallelism(world_size=1, sharding=Sharding.FSDP2), "", {}, "units that are gathered"),
        (None, "compile", {}, "kernel profile compile"),
        (None, "", {"accumulation": 2}, "accumulation"),
        (None, "", {"precision": Precision.FP32_BF16_COMPUTE}, "autocast"),
        (None, "", {"finetuning": Finetuning(rank=8)}, "frozen weights"),
    ],
)
def test_what_was_not_measured_keeps_the_factor_and_says_why(
    parallelism: Parallelism | None, profile: str, training: dict[str, Any], word: str
) -> None:
    answer = asked(parallelism, profile, **training)
    assert REPLAYED not in answer.assumptions
    assert any("no replay was measured" in each and word in each for each in answer.assumptions)


def test_a_replay_ends_with_its_call() -> None:
    asked_times = iter(range(100))
    request = settle(_request(None, "", {})).run
    run = model_run(request)
    with pytest.raises(CallCancelledError):
        replay(run, run.choice(request.training), lambda: next(asked_times) == 5)
    assert next(asked_times) == 6
