"""Reading config.json: what is read, assumed, ignored and refused, each in one sentence."""

import json
from typing import Any

import pytest

from haversack.errors import InvalidRequestError
from haversack_server.memory.architecture import Activation
from haversack_server.memory.hf_config import ReadConfig, read_hf_config

FIELD = "documents[0].text"
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "vocab_size": 100,
}


def read(config: dict[str, Any], **changes: Any) -> ReadConfig:
    """Read a configuration; a change to ... takes the key away."""
    values = {key: value for key, value in (config | changes).items() if value is not ...}
    return read_hf_config(json.dumps(values))


def refusal(config: dict[str, Any], **changes: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        read(config, **changes)
    return caught.value


def test_a_full_file_leaves_nothing_assumed_and_nothing_ignored() -> None:
    result = read(LLAMA, rope_theta=5e8, rms_norm_eps=1e-5)
    assert result.ignored == ()
    assert result.assumptions == ()


def test_the_type_of_stored_weights_is_said_not_to_be_the_type_of_training() -> None:
    (said,) = read(LLAMA, torch_dtype="float32").assumptions
    assert "how weights are stored; precision decides" in said


def test_quantized_weights_are_refused_by_name() -> None:
    refused = refusal(LLAMA, quantization_config={"bits": 4})
    assert refused.field == "documents[0].text.quantization_config"
    assert "not modelled" in str(refused)


def test_every_unknown_key_is_listed() -> None:
    result = read(LLAMA, other_key={"bits": 4}, my_key=1)
    assert result.ignored == ("other_key", "my_key")


def test_tensors_that_a_switch_gives_to_the_caller_are_listed_as_not_used() -> None:
    assert read(LLAMA, output_hidden_states=False, output_attentions=None).ignored == ()
    on = read(LLAMA, output_hidden_states=True, output_attentions=True)
    assert on.ignored == ("output_hidden_states", "output_attentions")


def test_missing_key_value_heads_are_one_per_head_in_llama() -> None:
    result = read(LLAMA, num_key_value_heads=...)
    assert result.architecture.kv_heads == 4
    assert result.assumptions == ("num_key_value_heads is missing: 4, one per attention head",)


def test_missing_key_value_heads_are_the_default_of_mistral() -> None:
    result = read(LLAMA, model_type="mistral", num_attention_heads=16, num_key_value_heads=...)
    assert result.architecture.kv_heads == 8
    assert result.assumptions == ("num_key_value_heads is missing: 8, the default of mistral",)


def test_null_key_value_heads_are_one_per_head() -> None:
    assert read(LLAMA, model_type="mistral", num_key_value_heads=None).architecture.kv_heads == 4


def test_qwen2_has_projection_biases_that_no_key_states() -> None:
    result = read(LLAMA, model_type="qwen2")
    names = [row.name for row in result.architecture.units[1].parameters]
    assert "self_attn.v_proj.bias" in names
    assert "self_attn.o_proj.bias" not in names
    assert any("bias" in sentence for sentence in result.assumptions)


def test_a_head_size_that_is_stated_need_not_follow_from_the_hidden_size() -> None:
    model = read(LLAMA, model_type="qwen3", head_dim=24).architecture
    assert model.units[1].parameters[1].shape == (4 * 24, 64)


def test_gpt2_ties_its_embeddings_and_quadruples_its_hidden_size_by_default() -> None:
    result = read(GPT2)
    assert result.architecture.tied
    assert result.architecture.ffn == 256
    assert result.architecture.attention_dropout == 0.1
    assert "n_inner is missing: 256, four times n_embd" in result.assumptions
    assert "tie_word_embeddings is missing: true, the default of gpt2" in result.assumptions


def test_gpt2_is_read_under_both_spellings() -> None:
    other = read(GPT2, n_embd=..., n_head=..., hidden_size=64, num_attention_heads=4)
    assert other.architecture == read(GPT2).architecture


def test_two_spellings_that_differ_are_refused() -> None:
    error = refusal(GPT2, hidden_size=128)
    assert str(error) == f"{FIELD}.hidden_size: hidden_size is 128, but n_embd is 64"


def test_gemma2_takes_its_activation_and_caps_from_its_defaults() -> None:
    result = read(LLAMA, model_type="gemma2", hidden_act=...)
    assert result.architecture.activation is Activation.GELU_TANH
    assert result.architecture.attention_softcap == 50.0
    assert "attn_logit_softcapping is missing: 50.0, the default of gemma2" in result.assumptions


def test_a_null_soft_cap_is_none() -> None:
    model = read(LLAMA, model_type="gemma2", attn_logit_softcapping=None).architecture
    assert model.attention_softcap is None


def test_a_window_that_is_switched_off_is_none() -> None:
    assert read(LLAMA, model_type="qwen2", sliding_window=16).architecture.sliding_window is None
    on = read(LLAMA, model_type="qwen2", sliding_window=16, use_sliding_window=True)
    assert on.architecture.sliding_window == 16


def test_the_family_is_found_by_the_class_where_the_type_is_missing() -> None:
    result = read(LLAMA, model_type=..., architectures=["Qwen3ForCausalLM"])
    assert result.architecture.family == "qwen3"
    assert "model_type is missing: qwen3, the family of Qwen3ForCausalLM" in result.assumptions


def test_a_number_of_thousands_of_digits_is_not_repeated_in_full() -> None:
    assert len(str(refusal(LLAMA, vocab_size=10**4000))) < 200


def test_an_unknown_family_is_named_with_the_supported_ones() -> None:
    error = refusal(LLAMA, model_type="mamba")
    assert error.field == f"{FIELD}.model_type"
    assert "'mamba' is not supported; use one of bert, bloom, cohere" in str(error)


def test_a_file_without_a_family_is_refused() -> None:
    assert "model_type is missing" in str(refusal(LLAMA, model_type=...))


@pytest.mark.parametrize("value", [True, 4.0, "4", [4], {"n": 4}])
def test_a_size_that_is_no_integer_is_refused(value: Any) -> None:
    error = refusal(LLAMA, num_hidden_layers=value)
    assert error.field == f"{FIELD}.num_hidden_layers"
    assert "give an integer" in str(error)


@pytest.mark.parametrize("value", [0, -1, 10_001, 1 << 41])
def test_a_size_out_of_range_is_refused_with_the_range(value: int) -> None:
    error = refusal(LLAMA, num_hidden_layers=value)
    assert f"is {value}; give an integer from 1 to 10000" in str(error)


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"]
)
def test_a_missing_size_is_named(key: str) -> None:
    error = refusal(LLAMA, **{key: ...})
    assert [row.field for row in error.violations] == [f"{FIELD}.{key}"]
    assert f"{key} is missing" in str(error)


def test_all_faults_are_reported_at_once() -> None:
    error = refusal(LLAMA, hidden_size="64", vocab_size=-5)
    assert [row.field for row in error.violations] == [
        f"{FIELD}.hidden_size",
        f"{FIELD}.vocab_size",
    ]


def test_heads_that_do_not_divide_the_hidden_size_are_refused() -> None:
    error = refusal(LLAMA, num_attention_heads=6, num_key_value_heads=2)
    assert "num_attention_heads is 6, which does not divide 64" in str(error)


def test_key_value_heads_that_do_not_divide_the_heads_are_refused() -> None:
    error = refusal(LLAMA, num_key_value_heads=3)
    assert error.field == f"{FIELD}.num_key_value_heads"
    assert "which does not divide 4 attention heads" in str(error)


def test_more_experts_per_token_than_experts_are_refused() -> None:
    error = refusal(LLAMA, model_type="mixtral", num_local_experts=2, num_experts_per_tok=3)
    assert "at most 2, the number of experts" in str(error)


@pytest.mark.parametrize("value", [1, 1.5, -0.1, True, "0.1"])
def test_a_dropout_rate_that_is_no_probability_is_refused(value: Any) -> None:
    assert "give a probability" in str(refusal(GPT2, resid_pdrop=value))


def test_sizes_that_multiply_beyond_reason_are_refused() -> None:
    error = refusal(LLAMA, hidden_size=1 << 40, head_dim=64)
    assert "parameters; at most" in str(error)


def test_an_unknown_activation_is_refused_with_the_known_ones() -> None:
    assert "use one of gelu, gelu_new" in str(refusal(LLAMA, hidden_act="softsign"))


def test_a_switch_that_changes_the_weights_is_refused() -> None:
    error = refusal(GPT2, add_cross_attention=True)
    assert error.field == f"{FIELD}.add_cross_attention"
    assert "is not modelled; only false is" in str(error)


def test_a_flag_must_be_true_or_false() -> None:
    assert "give true or false" in str(refusal(LLAMA, tie_word_embeddings="yes"))


def test_the_field_of_an_error_is_the_callers() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_hf_config("[]", field="subject.documents[3].text")
    assert caught.value.field == "subject.documents[3].text"


def test_a_soft_cap_of_hundreds_of_digits_is_refused() -> None:
    error = refusal(LLAMA, model_type="gemma2", attn_logit_softcapping=10**400)
    assert error.field == f"{FIELD}.attn_logit_softcapping"


def test_the_language_model_of_a_file_with_several_is_read_from_its_own_part() -> None:
    nested = {"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 3}
    whole = {"model_type": "gemma3", "text_config": nested, "vision_config": {"layers": 27}}
    result = read_hf_config(json.dumps(whole))
    assert result.architecture.family == "gemma3_text"
    assert result.architecture.layers == 3
    assert result.architecture.vocab == 262208
    assert result.ignored == ("vision_config",)
    assert any("text_config alone is read" in sentence for sentence in result.assumptions)


def test_a_nested_part_without_a_family_has_that_of_the_file_around_it() -> None:
    nested = {key: value for key, value in LLAMA.items() if key != "model_type"}
    result = read_hf_config(json.dumps({"model_type": "llava", "text_config": nested}))
    assert result.architecture.family == "llama"
    assert any("model_type is missing: llama" in sentence for sentence in result.assumptions)


def test_errors_in_a_nested_part_name_its_path() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_hf_config(json.dumps({"model_type": "llava", "text_config": {"hidden_size": 0}}))
    assert caught.value.field.startswith(f"{FIELD}.text_config.")


def test_layers_of_experts_follow_their_step_but_for_those_named_as_dense() -> None:
    sparse = {"num_experts": 8, "moe_intermediate_size": 48, "decoder_sparse_step": 2}
    model = read(
        LLAMA, model_type="qwen3_moe", num_hidden_layers=6, mlp_only_layers=[3], **sparse
    ).architecture
    assert model.dense_layers == (0, 2, 3, 4)
    assert model.dense_ffn == 176
    assert model.ffn == 48


def test_deepseek_says_that_multi_token_prediction_is_not_counted() -> None:
    values = {**LLAMA, "model_type": "deepseek_v3", "num_nextn_predict_layers": 1}
    result = read_hf_config(json.dumps(values))
    assert any("multi-token prediction" in sentence for sentence in result.assumptions)
    assert result.architecture.latent is not None


@pytest.mark.parametrize(
    ("switches", "kv_heads", "residual"),
    [
        ({}, 1, "parallel"),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, 2, "parallel_norms"),
        ({"multi_query": False, "parallel_attn": False}, 4, "sequential"),
    ],
)
def test_falcon_has_three_generations(
    switches: dict[str, Any], kv_heads: int, residual: str
) -> None:
    base = {key: LLAMA[key] for key in ("hidden_size", "num_hidden_layers", "vocab_size")}
    model = read({"model_type": "falcon", "num_attention_heads": 4, **base}, **switches)
    assert model.architecture.kv_heads == kv_heads
    assert model.architecture.residual == residual


def test_the_share_of_a_head_that_positions_turn_is_read_where_files_put_it() -> None:
    assert read(LLAMA, model_type="gpt_neox", rotary_pct=0.5).architecture.rotary_size == 8
    nested = read(LLAMA, model_type="phi", rope_parameters={"partial_rotary_factor": 0.25})
    assert nested.architecture.rotary_size == 4


def test_a_switch_that_only_one_value_is_modelled_of_is_refused_with_it() -> None:
    error = refusal(LLAMA, model_type="stablelm", qk_layernorm=True)
    assert "not modelled; only false is" in str(error)
