"""TrainingArguments in three forms, and the files of the trainers around them."""

from typing import Any

import pytest
from tests.unit.memory.inputs.samples import read, sample, settings, written

from haversack.errors import InvalidRequestError
from haversack.finetuning import StoredWeights
from haversack.parallelism import Sharding, WrapPolicy
from haversack.run import (
    Attention,
    DocumentFormat,
    Loss,
    Optimizer,
    OptimizerKernel,
    Precision,
    Recompute,
)
from haversack_server.memory.inputs.reading import DEEPSPEED_FILE, ENGINE, MIXED_PRECISION

KIND = DocumentFormat.HF_TRAINING_ARGUMENTS


def of(**values: Any) -> dict[str, Any]:
    return settings(written(KIND, values))


def test_a_json_file() -> None:
    found = settings(sample("hf_training_args.json"))
    assert found["training.microbatch"] == 2
    assert found["training.accumulation"] == 8
    assert found["training.recompute"] is Recompute.FULL
    assert found["training.optimizer"] is Optimizer.ADAMW
    assert found["training.optimizer_kernel"] is OptimizerKernel.FUSED
    assert found["parallelism.sharding"] is Sharding.FSDP1
    assert found["parallelism.wrap"] is WrapPolicy.LAYERS
    assert found[MIXED_PRECISION] == "bf16"
    assert read(sample("hf_training_args.json")).ignored == ()


def test_a_yaml_file_of_another_trainer() -> None:
    found = settings(sample("llamafactory_sft.yaml"))
    assert found["training.seq"] == 512
    assert found[DEEPSPEED_FILE] == "zero2_defaults.json"
    assert read(sample("llamafactory_sft.yaml")).unmodelled == ()


def test_a_command_line() -> None:
    line = (
        "accelerate launch --num_processes 8 train.py --per_device_train_batch_size 4 "
        "--bf16 True --gradient_checkpointing --learning_rate 2e-5 --weird 3"
    )
    reading = read(written(KIND, line))
    found = {each.field: each.value for each in reading.settings}
    assert found["parallelism.world_size"] == 8
    assert found["training.microbatch"] == 4
    assert found["training.recompute"] is Recompute.FULL
    assert reading.ignored == ("weird",)


def test_ranks_come_from_the_deepspeed_launcher() -> None:
    line = "deepspeed --num_gpus 8 --num_nodes=2 train.py --per_device_train_batch_size 4"
    reading = read(written(KIND, line))
    found = {each.field: (each.value, each.key) for each in reading.settings}
    assert found["parallelism.world_size"] == (16, "num-gpus")
    assert reading.ignored == ()


def test_a_deepspeed_configuration_inside_is_read_as_one() -> None:
    inner = {"zero_optimization": {"stage": 3, "stagee": 2}, "bf16": {"enabled": "auto"}}
    reading = read(written(KIND, {"bf16": True, "deepspeed": inner}))
    found = {each.field: each.value for each in reading.settings}
    assert found["parallelism.sharding"] is Sharding.ZERO_3
    assert found[ENGINE] == "deepspeed"
    assert reading.ignored == ("deepspeed.zero_optimization.stagee",)


@pytest.mark.parametrize(
    ("optim", "kernel"),
    [
        ("adamw_torch", OptimizerKernel.FOREACH),
        ("adamw_torch_fused", OptimizerKernel.FUSED),
        ("adamw_hf", OptimizerKernel.FOR_LOOP),
    ],
)
def test_an_optimizers_name_says_how_it_updates(optim: str, kernel: OptimizerKernel) -> None:
    assert of(optim=optim)["training.optimizer_kernel"] is kernel


def test_an_optimizer_whose_states_are_not_known_is_named() -> None:
    assert "optim=lomo" in read(written(KIND, {"optim": "lomo"})).unmodelled[0]


@pytest.mark.parametrize("key", ["max_seq_length", "cutoff_len", "sequence_len", "max_length"])
def test_a_length_has_many_names(key: str) -> None:
    assert of(**{key: 4096})["training.seq"] == 4096


def test_two_lengths_that_differ_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="but max_seq_length is 512"):
        of(max_seq_length=512, max_length=1024)


def test_adapters_of_llama_factory() -> None:
    found = of(finetuning_type="lora", lora_rank=16, quantization_bit=4, lora_dropout=0.1)
    finetuning = found["training.finetuning"]
    assert finetuning.rank == 16
    assert finetuning.targets == ("query", "key", "value", "output", "gate", "up", "down")
    assert finetuning.frozen_weights is StoredWeights.NF4_DOUBLE
    assert finetuning.adapter_dropout == 0.1


def test_adapters_of_axolotl_and_trl() -> None:
    axolotl = of(adapter="qlora", lora_r=32, load_in_4bit=True, lora_target_linear=True)
    assert axolotl["training.finetuning"].frozen_weights is StoredWeights.NF4_DOUBLE
    trl = of(use_peft=True, lora_target_modules=["q_proj", "v_proj"], load_in_8bit=True)
    assert trl["training.finetuning"].rank == 8
    assert trl["training.finetuning"].targets == ("query", "value")
    assert trl["training.finetuning"].frozen_weights is StoredWeights.INT8


def test_a_module_that_is_not_known_is_named() -> None:
    reading = read(written(KIND, {"adapter": "lora", "lora_target_modules": ["wqkv"]}))
    assert "modules of these names" in reading.unmodelled[0]


def test_other_ways_of_training_are_named() -> None:
    values = {"finetuning_type": "freeze", "quantization_bit": 4, "stage": "dpo"}
    said = " ".join(read(written(KIND, values)).unmodelled)
    assert "frozen parameters of another kind" in said
    assert "quantized weights" in said
    assert "a second model" in said


def test_kernels_and_recipes() -> None:
    found = of(use_liger_kernel=True, attn_implementation="eager", pure_bf16=True)
    assert found["training.loss"] is Loss.FUSED_LINEAR
    assert found["training.attention"] is Attention.EAGER
    assert found["training.precision"] is Precision.BF16


def test_fsdp_that_is_off_leaves_its_section_ignored() -> None:
    reading = read(
        written(KIND, {"fsdp": "", "fsdp_config": {"backward_prefetch": "backward_pre"}})
    )
    assert reading.ignored == ("fsdp_config.backward_prefetch",)
    assert not any(each.field == "parallelism.sharding" for each in reading.settings)


def test_fsdp_of_version_2_stands_in_its_section() -> None:
    found = of(fsdp=True, fsdp_config={"fsdp_version": 2, "reshard_after_forward": False})
    assert found["parallelism.sharding"] is Sharding.FSDP2
    assert found["parallelism.reshard_after_forward"] is False


def test_fsdp_without_wrapping_is_one_unit() -> None:
    assert "one unit" in read(written(KIND, {"fsdp": "full_shard"})).unmodelled[0]


def test_a_strategy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="use one of full_shard"):
        of(fsdp="half_shard auto_wrap")


@pytest.mark.parametrize(
    ("optim", "optimizer"),
    [
        ("adamw_bnb_8bit", Optimizer.ADAMW_8BIT),
        ("paged_adamw_8bit", Optimizer.PAGED_ADAMW_8BIT),
        ("adafactor", Optimizer.ADAFACTOR_FP32),
        ("lion_32bit", Optimizer.LION),
    ],
)
def test_optimizers_of_other_libraries(optim: str, optimizer: Optimizer) -> None:
    found = of(optim=optim)
    assert found["training.optimizer"] is optimizer
    assert "training.optimizer_kernel" not in found


def test_llama_factory_recomputes_unless_told_not_to() -> None:
    assert of(cutoff_len=512)["training.recompute"] is Recompute.FULL
    off = of(cutoff_len=512, disable_gradient_checkpointing=True)
    assert "training.recompute" not in off
    assert "training.recompute" not in of(max_length=512)
