"""Parameter counts and units of the supported families, against counts of the real modules."""

import json
from pathlib import Path
from typing import Any

import pytest

from haversack_server.memory.architecture import Architecture, Parameter, UnitKind
from haversack_server.memory.hf_config import read_hf_config

GOLDEN = Path(__file__).parents[2] / "golden"
ROWS: dict[str, Any] = json.loads((GOLDEN / "param_counts.json").read_text())
COUNTS: dict[str, dict[str, Any]] = ROWS["models"]
# Models of which not every layer is the same, or that are no decoders.
OTHERS: dict[str, dict[str, Any]] = ROWS["other_models"]


def architecture(name: str) -> Architecture:
    text = (GOLDEN / "hf" / f"{name}.json").read_text()
    return read_hf_config(text, name).architecture


@pytest.mark.parametrize("name", COUNTS)
def test_a_sample_has_the_parameters_of_the_real_model(name: str) -> None:
    assert architecture(name).parameter_count == COUNTS[name]["unique_params"]


@pytest.mark.parametrize("name", COUNTS)
def test_the_first_layer_has_the_parameters_of_the_largest_block(name: str) -> None:
    layer = architecture(name).units[1]
    assert layer.name == COUNTS[name]["largest_block"]
    assert layer.parameter_count == COUNTS[name]["largest_block_params"]


@pytest.mark.parametrize("name", OTHERS)
def test_experts_encoders_and_both_stacks_have_the_parameters_of_the_real_model(name: str) -> None:
    model = architecture(name)
    assert model.parameter_count == OTHERS[name]["unique_params"]
    layers = [unit.parameter_count for unit in model.units if unit.kind is UnitKind.LAYER]
    assert max(layers) == OTHERS[name]["largest_block_params"]


def test_an_encoder_stands_before_its_decoder_with_a_bridge_between() -> None:
    names = [unit.name for unit in architecture("t5_base").units]
    assert names[:2] == ["embedding", "encoder.block.0"]
    assert names[12:15] == ["encoder.block.11", "decoder.embedding", "decoder.block.0"]
    assert names[-1] == "head"


def test_dense_layers_before_those_with_experts_are_described_apart() -> None:
    model = architecture("deepseek_v3")
    dense = [unit.variant for unit in model.units if unit.variant is not None]
    assert len(dense) == 3
    assert all(layer.experts == 0 and layer.ffn == 18432 for layer in dense)
    assert model.experts == 256


# Counted on the meta device from public hyper-parameters.
@pytest.mark.parametrize(
    ("config", "count"),
    [
        (
            {
                "model_type": "mistral",
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "vocab_size": 32000,
            },
            7_241_732_096,
        ),
        (
            {
                "model_type": "qwen2",
                "hidden_size": 5120,
                "intermediate_size": 27648,
                "num_hidden_layers": 64,
                "num_attention_heads": 40,
                "num_key_value_heads": 8,
                "vocab_size": 152064,
            },
            32_763_876_352,
        ),
        (
            {
                "model_type": "gemma2",
                "hidden_size": 3584,
                "intermediate_size": 14336,
                "num_hidden_layers": 42,
                "num_attention_heads": 16,
                "num_key_value_heads": 8,
                "head_dim": 256,
                "vocab_size": 256000,
            },
            9_241_705_984,
        ),
    ],
    ids=["mistral-7b", "qwen2.5-32b", "gemma2-9b"],
)
def test_public_models_have_their_published_counts(config: dict[str, Any], count: int) -> None:
    assert read_hf_config(json.dumps(config)).architecture.parameter_count == count


@pytest.mark.parametrize("name", COUNTS)
def test_units_add_up_and_run_from_the_embedding_through_the_layers_to_the_head(name: str) -> None:
    model = architecture(name)
    kinds = [unit.kind for unit in model.units]
    assert kinds == [UnitKind.EMBEDDING, *[UnitKind.LAYER] * model.layers, UnitKind.HEAD]
    assert sum(unit.parameter_count for unit in model.units) == model.parameter_count


def test_a_tied_weight_is_listed_once_and_the_head_says_whose_it_uses() -> None:
    model = architecture("gpt2")
    embedding, head = model.units[0], model.units[-1]
    assert [row.name for row in embedding.parameters] == [
        "transformer.wte.weight",
        "transformer.wpe.weight",
    ]
    assert [row.name for row in head.parameters] == [
        "transformer.ln_f.weight",
        "transformer.ln_f.bias",
    ]
    assert head.tied_to == "transformer.wte.weight"


def test_an_untied_head_has_a_weight_of_its_own() -> None:
    head = architecture("llama3_8b").units[-1]
    assert head.tied_to == ""
    assert head.parameters[-1] == Parameter("lm_head.weight", (128256, 4096), 0)


def test_equal_layers_share_their_parameters() -> None:
    first, *rest = architecture("llama3_70b").units[1:-1]
    assert all(layer.parameters is first.parameters for layer in rest)


def test_tensor_parallel_ranks_hold_their_part_of_products_and_all_of_the_norms() -> None:
    layer = architecture("llama3_8b").units[1]
    norms = 2 * 4096
    assert layer.parameter_count_on(8) == (layer.parameter_count - norms) // 8 + norms


def test_an_axis_that_tensor_parallelism_does_not_divide_is_padded() -> None:
    assert Parameter("lm_head.weight", (10, 3), 0).count_on(4) == 3 * 3


def test_the_bias_of_a_row_split_product_is_whole_on_every_rank() -> None:
    layer = architecture("gpt2").units[1]
    split = {row.name: row.tensor_parallel_axis for row in layer.parameters}
    assert split["attn.c_attn.bias"] == 0
    assert split["attn.c_proj.bias"] is None


def test_architectures_of_equal_sizes_are_equal_whatever_their_names() -> None:
    text = (GOLDEN / "hf" / "gpt2.json").read_text()
    one, other = (read_hf_config(text, name).architecture for name in ("one", "other"))
    assert one == other
    assert hash(one) == hash(other)
