"""A run in settings, and the kind that its interval is chosen by."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from haversack.finetuning import Finetuning
from haversack.parallelism import Parallelism, Sharding
from haversack.run import Document, DocumentFormat, Loss, Precision, Recompute, Training
from haversack.run import TrainingRun as Run
from haversack_server.memory.model_run import model_run

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 50,
}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
BERT = LLAMA | {"model_type": "bert"}
PLAIN = Training(microbatch=1, seq=32)
LORA = Finetuning(rank=4, targets=("query", "value"))


def run(
    config: Mapping[str, object] = LLAMA,
    training: Training = PLAIN,
    parallelism: Parallelism = Parallelism(),
) -> Run:
    text = json.dumps(config)
    document = Document(format=DocumentFormat.HF_CONFIG, text=text)
    return Run(documents=(document,), training=training, parallelism=parallelism)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (run(), "plain"),
        (run(MIXTRAL), "experts"),
        (run(training=replace(PLAIN, finetuning=LORA)), "frozen weights"),
        (run(BERT), "encoder"),
        (run(training=replace(PLAIN, precision=Precision.FP32)), "32-bit numbers"),
        (run(training=replace(PLAIN, loss=Loss.FP32)), "plain"),
        (run(training=replace(PLAIN, loss=Loss.PLAIN)), "another loss"),
        (run(training=replace(PLAIN, recompute=Recompute.FULL)), "plain"),
        (run(training=replace(PLAIN, recompute=Recompute.SELECTIVE)), "selective recomputation"),
        (run(parallelism=Parallelism(world_size=2, pp=2)), "pipeline"),
        (run(parallelism=Parallelism(world_size=2, cp=2)), "context parallel"),
        (run(parallelism=Parallelism(world_size=2)), "replicas"),
        (run(parallelism=Parallelism(world_size=2, tp=2)), "tensor parallel in transformers"),
        (run(parallelism=Parallelism(world_size=2, sharding=Sharding.ZERO_3)), "DeepSpeed"),
        (
            run(parallelism=Parallelism(world_size=2, sharding=Sharding.FSDP2)),
            "sharded parameters",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_the_kind_is_the_hardest_setting_of_a_run(asked: Run, kind: str) -> None:
    assert model_run(asked).kind == kind


def test_settings_are_what_measured_runs_are_compared_by() -> None:
    found = model_run(run(parallelism=Parallelism(world_size=8, tp=2, sharding=Sharding.ZERO_1)))
    expected = {"layers": 4, "hidden": 64, "seq": 32, "tp": 2, "shards": 4, "sharding": "zero_1"}
    assert {name: found.settings[name] for name in expected} == expected
    assert found.settings["attention"] == "flash"
    assert found.settings["recompute"] == "none"
