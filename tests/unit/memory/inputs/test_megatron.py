"""Megatron-LM's arguments: one run in three forms, the model in them, its padded vocabulary."""

from typing import Any

import pytest
from tests.unit.memory.inputs.samples import read, sample, settings, written

from haversack.errors import InvalidRequestError
from haversack.parallelism import ContextParallel, Sharding
from haversack.run import Attention, DocumentFormat, Loss, Optimizer, Precision, Recompute
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.inputs.reading import GLOBAL_BATCH

KIND = DocumentFormat.MEGATRON_ARGUMENTS
SMALL = {
    "num-layers": 12,
    "hidden-size": 512,
    "num-attention-heads": 8,
    "seq-length": 1024,
    "max-position-embeddings": 1024,
    "micro-batch-size": 4,
    "bf16": True,
}


def of(**changes: Any) -> dict[str, Any]:
    values = SMALL | {key.replace("_", "-"): value for key, value in changes.items()}
    return settings(written(KIND, values))


def architecture(values: dict[str, Any]) -> Architecture:
    found = read(written(KIND, values)).architecture
    assert found is not None
    return found


def refusal(values: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        read(written(KIND, values))
    return caught.value


def test_a_command_line_and_a_recipe_say_the_same() -> None:
    line, recipe = (read(sample(f"gpt_7b_tp2_pp1.{end}")) for end in ("args", "yaml"))
    assert line.settings == recipe.settings
    assert line.architecture == recipe.architecture
    assert line.ignored == ()
    assert recipe.ignored == ("ENV_VARS",)


def test_what_the_arguments_say_of_a_run() -> None:
    found = settings(sample("gpt_7b_tp2_pp1.args"))
    assert found["parallelism.tp"] == 2
    assert found["parallelism.sequence_parallel"] is True
    assert found["parallelism.sharding"] is Sharding.DISTRIBUTED_OPTIMIZER
    assert found["training.microbatch"] == 2
    assert found["training.seq"] == 4096
    assert found[GLOBAL_BATCH] == 128
    assert found["training.recompute"] is Recompute.SELECTIVE
    assert found["training.attention"] is Attention.FLASH
    assert found["training.optimizer"] is Optimizer.ADAMW
    assert found["kernel_profile"] == "megatron-te"


def test_the_model_is_llama_2_where_its_arguments_are() -> None:
    model = read(sample("gpt_7b_tp2_pp1.args")).architecture
    assert model is not None
    assert model.parameter_count == 6_738_415_616  # tests/golden/param_counts.json, llama2_7b


def test_a_small_gpt_by_hand() -> None:
    model = architecture(SMALL)
    layer = 12 * 512 * 512 + 13 * 512
    assert model.vocab == 50_304  # GPT-2's 50,257 up to a multiple of 128
    assert model.parameter_count == 12 * layer + (50_304 + 1024) * 512 + 2 * 512
    assert model.parameter_count == 64_109_568  # of this recipe, NVIDIA/Megatron-LM golden values


def test_the_vocabulary_is_padded_for_the_tensor_parallel_ranks() -> None:
    values = SMALL | {"vocab-size": 131_073, "tensor-model-parallel-size": 4}
    assert architecture(values).vocab == 131_584  # a multiple of 512
    assert architecture(values | {"padded-vocab-size": 140_000}).vocab == 140_000


def test_a_vocabulary_in_a_file_that_is_not_read_has_to_be_given() -> None:
    wrong = refusal(SMALL | {"tokenizer-type": "HuggingFaceTokenizer"})
    assert wrong.field == "documents[0].text.vocab-size"


def test_swiglu_has_the_feed_forward_size_that_megatron_gives_it() -> None:
    assert architecture(SMALL | {"swiglu": True}).ffn == 1344  # 64 * floor(2/3 * 4 * 512 / 64)
    assert architecture(SMALL).ffn == 2048


def test_grouped_queries_need_their_groups() -> None:
    model = architecture(SMALL | {"group-query-attention": True, "num-query-groups": 2})
    assert model.kv_heads == 2
    assert "num-query-groups" in str(refusal(SMALL | {"group-query-attention": True}))


def test_experts_stand_beside_dense_layers() -> None:
    values = SMALL | {
        "num-experts": 8,
        "moe-router-topk": 2,
        "moe-ffn-hidden-size": 256,
        "moe-layer-freq": "([0]*1+[1]*11)",
        "moe-shared-expert-intermediate-size": 128,
        "disable-bias-linear": True,
        "swiglu": True,
        "ffn-hidden-size": 1024,
    }
    model = architecture(values)
    assert (model.experts, model.dense_layers, model.dense_ffn) == (8, (0,), 1024)
    first, second = (unit.parameter_count for unit in model.units[1:3])
    attention = 4 * 512 * 512 + 4 * 512
    assert first == attention + 3 * 1024 * 512
    assert second == attention + 8 * 512 + 8 * 3 * 256 * 512 + 3 * 128 * 512


@pytest.mark.parametrize("frequency", ["[0]*3", "([2]*12)", "__import__('os')", [1] * 11, "1+1"])
def test_a_pattern_of_layers_is_read_and_never_run(frequency: Any) -> None:
    values = SMALL | {"num-experts": 8, "moe-layer-freq": frequency}
    assert refusal(values).field == "documents[0].text.moe-layer-freq"


def test_latent_attention() -> None:
    values = SMALL | {
        "multi-latent-attention": True,
        "q-lora-rank": 96,
        "kv-lora-rank": 64,
        "qk-head-dim": 32,
        "qk-pos-emb-head-dim": 16,
        "v-head-dim": 32,
        "qk-layernorm": True,
        "normalization": "RMSNorm",
        "disable-bias-linear": True,
    }
    model = architecture(values)
    shapes = {parameter.name: parameter.shape for parameter in model.units[1].parameters}
    assert shapes["self_attention.linear_kv_up_proj.weight"] == (8 * 64, 64)
    assert shapes["self_attention.linear_q_down_proj.weight"] == (96, 512)


@pytest.mark.parametrize(
    ("changes", "precision"),
    [
        ({}, Precision.BF16_FP32_GRADIENT),
        ({"grad_reduce_in_bf16": True}, Precision.BF16_FP32_MASTER),
        ({"bf16": False}, Precision.FP32),
        ({"bf16": False, "fp16": True}, Precision.BF16_FP32_MASTER),
    ],
)
def test_the_recipe_of_numbers(changes: dict[str, Any], precision: Precision) -> None:
    assert of(**changes)["training.precision"] is precision


def test_kernels_and_losses() -> None:
    found = of(
        transformer_impl="local",
        cross_entropy_loss_fusion=True,
        cross_entropy_fusion_impl="te",
        cp_comm_type="a2a",
    )
    assert found["kernel_profile"] == "megatron-local"
    assert found["training.attention"] is Attention.EAGER
    assert found["training.loss"] is Loss.IN_PLACE
    assert found["parallelism.context_parallel"] is ContextParallel.ALL_TO_ALL


def test_ranks_come_from_the_launcher() -> None:
    line = (
        "torchrun --nnodes 2 --nproc-per-node 8 --master-port 29500 pretrain_gpt.py \\\n"
        "  --num-layers 12 --hidden-size=512 --num-attention-heads 8 --bf16"
        " --max-position-embeddings 1024"
    )
    reading = read(written(KIND, line))
    found = {each.field: each.value for each in reading.settings}
    assert found["parallelism.world_size"] == 16
    assert reading.ignored == ()
    assert reading.silent == ("launcher.master-port",)


def test_learned_positions_without_their_number_are_refused_with_what_would_do() -> None:
    line = "--num-layers 12 --hidden-size 512 --num-attention-heads 8"
    wrong = refusal(line)
    assert "max-position-embeddings is not given" in str(wrong)
    assert "at least seq-length, or --position-embedding-type rope" in str(wrong)
    assert read(written(KIND, f"{line} --position-embedding-type rope")).architecture


def test_a_variable_of_the_shell_is_not_a_number() -> None:
    wrong = refusal("--num-layers $LAYERS --hidden-size 512 --num-attention-heads 8")
    assert "'$LAYERS'; give a whole number" in str(wrong)


def test_an_argument_that_stands_twice_is_refused() -> None:
    assert "stands twice" in str(refusal("--micro-batch-size 1 --micro-batch-size 2"))


def test_another_model_is_named_and_gives_no_architecture() -> None:
    reading = read(written(KIND, SMALL | {"hybrid-layer-pattern": "M-M*"}))
    assert reading.architecture is None
    assert "layers of several kinds" in reading.unmodelled[0]


def test_an_argument_that_nobody_knows_is_listed() -> None:
    assert read(written(KIND, SMALL | {"tensor-paralell-size": 2})).ignored == (
        "tensor-paralell-size",
    )


def test_a_script_says_that_the_model_is_bert() -> None:
    line = " ".join(
        f"--{key}" if value is True else f"--{key} {value}" for key, value in SMALL.items()
    )
    reading = read(written(KIND, f"torchrun examples/pretrain_bert.py {line}"))
    model = reading.architecture
    assert model is not None
    assert model.vocab == 30_592  # bert-uncased's 30,522 up to a multiple of 128
    plain = architecture(SMALL | {"vocab-size": 30_592})
    head = 2 * (512 * 512 + 512) + 2 * 512 + 30_592 + 2 * 512 + 2
    assert model.parameter_count == plain.parameter_count + 2 * 512 + head
    found = {each.field: each.value for each in reading.settings}
    assert found["training.loss"] is Loss.FP32_IN_PLACE


def test_a_recipe_names_its_script_too() -> None:
    values = {"TRAINING_SCRIPT_PATH": "pretrain_bert.py", "MODEL_ARGS": SMALL}
    reading = read(written(KIND, values))
    assert reading.architecture is not None
    assert reading.architecture.family == "megatron-bert"
    assert reading.ignored == ()


def test_an_encoder_with_a_decoder_is_t5() -> None:
    values = {
        "encoder-num-layers": 2,
        "decoder-num-layers": 3,
        "hidden-size": 64,
        "ffn-hidden-size": 128,
        "num-attention-heads": 4,
        "kv-channels": 16,
        "encoder-seq-length": 512,
        "decoder-seq-length": 128,
        "max-position-embeddings": 512,
        "vocab-size": 1000,
        "bf16": True,
    }
    reading = read(written(KIND, values))
    model = reading.architecture
    assert model is not None
    assert model.vocab == 1152  # 1,000 and 100 sentinels up to a multiple of 128
    attention = 4 * 64 * 64 + 4 * 64 + 2 * 64
    feed_forward = 2 * 64 * 128 + 128 + 64 + 2 * 64
    encoder, decoder = attention + feed_forward, 2 * attention + feed_forward
    ends = (1152 + 512) * 64 + 2 * 2 * 64 + 1152
    assert model.parameter_count == 2 * encoder + 3 * decoder + ends
    found = {each.field: each.value for each in reading.settings}
    assert (found["training.seq"], found["training.target_seq"]) == (512, 128)


def test_a_script_of_another_model_is_named() -> None:
    reading = read(written(KIND, "pretrain_mamba.py --num-layers 2 --hidden-size 8"))
    assert reading.architecture is None
    assert "Mamba under Megatron" in reading.unmodelled[0]


def test_muon_and_an_optimizer_on_the_host() -> None:
    found = of(optimizer="dist_muon", optimizer_cpu_offload=True)
    assert found["training.optimizer"] is Optimizer.MUON
    assert found["parallelism.offload_optimizer"] is True
