"""What users reported about their files, each as a test; the thread is named beside it."""

from typing import Any

import pytest
from tests.unit.memory.inputs.samples import model, sample, settings, written

from haversack import EstimateRequest
from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateVerdict
from haversack.parallelism import Parallelism, Sharding
from haversack.run import Device, Document, DocumentFormat, Precision, Training
from haversack_server.estimate.answer import estimate
from haversack_server.memory.inputs.settled import settle

MIB = 2**20


def zero(**keys: Any) -> Document:
    values = {"bf16": {"enabled": True}, "zero_optimization": keys}
    return written(DocumentFormat.DEEPSPEED, values, name="ds.json")


def backward_mib(document: Document) -> float:
    asked = EstimateRequest(
        documents=(model(), document),
        # Long enough for a peak in backward, where the buckets are; not in the optimizer step.
        training=Training(seq=4096, microbatch=1),
        parallelism=Parallelism(world_size=8),
    )
    answer = estimate(asked)
    assert answer.peak is not None
    assert "backward" in answer.peak_phase
    return answer.peak.allocated.expected_bytes / MIB


def test_smaller_buckets_save_what_the_user_saw() -> None:
    # deepspeedai/DeepSpeed, ZeRO-2 bucket 5e8 -> 1e8 -> 1e7, overlap_comm off:
    # -1527, -341 and -954 MiB seen, 4, 4 and 2 bytes an element by arithmetic.
    whole = backward_mib(zero(stage=2, reduce_bucket_size=5e8, overlap_comm=True))
    fifth = backward_mib(zero(stage=2, reduce_bucket_size=1e8, overlap_comm=True))
    tenth = backward_mib(zero(stage=2, reduce_bucket_size=1e7, overlap_comm=True))
    alone = backward_mib(zero(stage=2, reduce_bucket_size=5e8, overlap_comm=False))
    assert fifth - whole == pytest.approx(-1526, abs=1)
    assert tenth - fifth == pytest.approx(-343, abs=1)
    assert alone - whole == pytest.approx(-954, abs=1)


def test_states_of_an_offloaded_run_are_not_sold_as_the_run() -> None:
    # deepspeedai/DeepSpeed#4527: the estimator said 0.49 GB, the job showed 14.7 to 21 GB.
    offload = zero(stage=3, offload_optimizer={"device": "cpu"}, offload_param={"device": "cpu"})
    answer = estimate(
        EstimateRequest(
            parameter_count=6_805_000_000,
            documents=(offload,),
            parallelism=Parallelism(world_size=4),
            device=Device(memory_bytes=80 * 2**30),
        )
    )
    assert answer.verdict is EstimateVerdict.UNKNOWN
    assert "activations and working tensors come on top" in answer.reason
    assert answer.steady_bytes < 2**30


def test_a_file_full_of_auto_is_runnable() -> None:
    # deepspeedai/DeepSpeed#7269, #4759; transformers#27830: tuners failed on "auto".
    settled = settle(EstimateRequest(documents=(model(), sample("zero3_offload_auto.json"))))
    assert settled.run.parallelism.prefetch_elements == int(0.9 * 4096 * 4096)
    assert any("train_micro_batch_size_per_gpu is auto" in each for each in settled.assumptions)


def test_the_name_of_a_recipe_is_not_enough() -> None:
    # Lightning-AI/pytorch-lightning#18717: "bf16" kept fp32 weights. The answer says which.
    said = settle(EstimateRequest(documents=(model(), sample("fsdp1_full_shard.yaml"))))
    assert said.run.training.precision is Precision.FP32_BF16_COMPUTE
    assert any("fp32 shards, computed with in half precision" in each for each in said.assumptions)


def test_versions_of_fsdp_give_different_answers() -> None:
    # huggingface/accelerate#3897: what was fine under FSDP1 was not under FSDP2.
    peaks = []
    for name in ("fsdp1_full_shard.yaml", "fsdp2_reshard.yaml"):
        asked = EstimateRequest(
            documents=(model(), sample(name)),
            training=Training(seq=4096, microbatch=1),
            parallelism=Parallelism(world_size=8),
        )
        answer = estimate(asked)
        assert answer.peak is not None
        peaks.append(answer.peak.allocated.expected_bytes)
    assert peaks[0] != peaks[1]


def test_experts_are_split_otherwise_than_the_rest() -> None:
    # NVIDIA-NeMo/Megatron-Bridge#3744: expert and tensor degrees were taken for one.
    found = settings(
        written(
            DocumentFormat.MEGATRON_ARGUMENTS,
            "--tensor-model-parallel-size 2 --expert-model-parallel-size 4 "
            "--expert-tensor-parallel-size 1 --use-distributed-optimizer --bf16",
        )
    )
    assert found["parallelism.tp"] == 2
    assert found["parallelism.ep"] == 4
    assert found["parallelism.expert_tp"] == 1
    assert found["parallelism.sharding"] is Sharding.DISTRIBUTED_OPTIMIZER


def test_uneven_stages_are_told_apart_and_never_averaged() -> None:
    # NVIDIA-NeMo/Megatron-Bridge#5077: layers [1, 2, 2, 3] were divided evenly, 31.8 % too low.
    line = (
        "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 128 "
        "--max-position-embeddings 128 --micro-batch-size 1 --bf16 --vocab-size 512 "
        "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et|tt|tt|tttL'"
    )
    document = written(DocumentFormat.MEGATRON_ARGUMENTS, line)
    answer = estimate(EstimateRequest(documents=(document,), parallelism=Parallelism(world_size=4)))
    layer = 18 * (12 * 512 * 512 + 13 * 512)
    steady = [each.steady_bytes for each in answer.ranks]
    assert steady[1] == 2 * layer
    assert steady[-1] > 3 * layer
    assert answer.steady_bytes == max(steady)
    assert max(steady) / (sum(steady) / 4) > 1.3


def test_a_misspelled_key_is_never_a_wrong_answer_in_silence() -> None:
    asked = EstimateRequest(
        documents=(model(), zero(stage=2, offload_optimiser={"device": "cpu"})),
        training=Training(seq=128),
        parallelism=Parallelism(world_size=8),
    )
    ignored = estimate(asked).ignored_inputs
    assert ignored[0] == "ds.json: zero_optimization.offload_optimiser.device"


def test_a_file_of_the_toml_era_with_a_key_of_another_year_is_not_dropped() -> None:
    # pytorch/torchtitan#2386: keys moved between sections and years.
    old = written(
        DocumentFormat.TORCHTITAN_TOML,
        "[training]\nbatch_size = 2\nlocal_batch_size = 4\nseq_len = 128\n",
    )
    with pytest.raises(InvalidRequestError, match=r"but training\.local_batch_size is 4"):
        settle(EstimateRequest(documents=(model(), old)))
