"""Products in 8 bits: what they keep, the copies of weights, and where they are not known."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.memory.test_megatron_parts import BF16, FFN, HIDDEN, MOE, PROFILE, ROWS, SHAPE, kept

from haversack.estimate import Estimate, EstimateRequest
from haversack.run import Document, DocumentFormat, Training
from haversack.training import Fp8Recipe, Recompute, RecomputeModule
from haversack_server.estimate.answer import estimate
from haversack_server.memory.architecture import Parameter
from haversack_server.memory.fp8 import copy_permille, fp8_of, is_multiplied
from haversack_server.memory.layers import layer_tape

GPT = {
    "num-layers": 2,
    "hidden-size": 256,
    "num-attention-heads": 4,
    "seq-length": 128,
    "max-position-embeddings": 128,
    "micro-batch-size": 1,
    "global-batch-size": 1,
    "vocab-size": 1024,
    "disable-bias-linear": True,
    "bf16": True,
}
MATRICES = 2 * (4 * 256**2 + 2 * 256 * 1024)  # attention and feed-forward of both layers
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 256,
}


def asked(**changes: Any) -> Estimate:
    values = GPT | {key.replace("_", "-"): value for key, value in changes.items()}
    text = json.dumps(values)
    document = Document(format=DocumentFormat.MEGATRON_ARGUMENTS, text=text)
    return estimate(EstimateRequest(documents=(document,)))


def terms(answer: Estimate) -> dict[str, int]:
    return {term.name: term.largest_bytes for term in answer.terms}


def test_a_product_keeps_its_input_in_8_bits() -> None:
    shape = replace(SHAPE, fp8=fp8_of(Training(fp8=Fp8Recipe.TENSORWISE)))
    tape = layer_tape(MOE, PROFILE, shape)
    assert kept(tape, "expert in input in 8 bits") == ROWS * 2 * HIDDEN
    assert kept(tape, "expert down input in 8 bits") == ROWS * 2 * FFN
    assert not kept(tape, "chosen tokens", "weighed gated activation")
    # The router is no product of Transformer Engine's, and attention's result is kept as it is.
    assert kept(tape, "rms norm #") >= ROWS * HIDDEN * BF16
    assert kept(tape, "heads joined") == ROWS * HIDDEN * BF16


def test_scales_of_blocks_take_a_32nd_more() -> None:
    shape = replace(SHAPE, fp8=fp8_of(Training(fp8=Fp8Recipe.MXFP8)))
    blocks = kept(layer_tape(MOE, PROFILE, shape), "expert in input")
    assert blocks == pytest.approx(ROWS * 2 * HIDDEN * 33 / 32, rel=1e-3)


def test_what_is_made_again_in_backward_is_kept_as_it_is() -> None:
    modules = (RecomputeModule.MOE_ACTIVATION,)
    training = Training(
        fp8=Fp8Recipe.TENSORWISE, recompute=Recompute.SELECTIVE, recompute_modules=modules
    )
    tape = layer_tape(MOE, PROFILE, replace(SHAPE, fp8=fp8_of(training)))
    assert kept(tape, "weighed gated activation") == ROWS * 2 * FFN * BF16


def test_every_matrix_of_the_layers_has_two_copies() -> None:
    found = asked(fp8_format="hybrid", fp8_recipe="tensorwise")
    assert terms(found)["copies of weights in 8 bits"] == 2 * MATRICES
    assert "copies of weights in 8 bits" not in terms(asked())
    stored = asked(fp8_format="hybrid", fp8_recipe="tensorwise", fp8_param_gather=True)
    assert "copies of weights in 8 bits" not in terms(stored)


def test_copies_stand_between_steps_and_are_part_of_every_peak() -> None:
    plain, narrow = asked(), asked(fp8_format="e4m3", fp8_recipe="delayed")
    more = narrow.ranks[0].between_steps_bytes - plain.ranks[0].between_steps_bytes
    assert more == 2 * MATRICES
    at_peak = {term.name: term.bytes for term in narrow.terms}
    assert at_peak["copies of weights in 8 bits"] == 2 * MATRICES


def test_the_recipe_that_is_not_given_is_megatrons() -> None:
    found = asked(fp8_format="hybrid")
    assert any("fp8-recipe is missing: delayed" in each for each in found.assumptions)
    assert copy_permille(Training(fp8=Fp8Recipe.DELAYED)) == 2000
    assert fp8_of(Training()) is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"fp8_dot_product_attention": True}, "attention in 8 bits"),
        ({"fp8_recipe": "mxfp8", "fp8_param_gather": True}, "a scale for each block"),
        ({"transformer_impl": "local"}, "fp8 under the kernel profile megatron-local"),
    ],
)
def test_what_is_not_known_of_8_bits_is_named(changes: dict[str, Any], named: str) -> None:
    found = asked(fp8_format="hybrid", **changes)
    assert found.peak is None
    assert named in "; ".join(found.not_modelled)


def test_other_frameworks_products_in_8_bits_are_not_known() -> None:
    document = Document(format=DocumentFormat.HF_CONFIG, text=json.dumps(LLAMA))
    training = Training(seq=64, fp8=Fp8Recipe.TENSORWISE)
    found = estimate(EstimateRequest(documents=(document,), training=training))
    assert found.peak is None
    assert "fp8 under the kernel profile hf-eager" in "; ".join(found.not_modelled)


def test_weights_in_8_bits_are_read_with_products_in_8_bits_only() -> None:
    document = Document(format=DocumentFormat.HF_CONFIG, text=json.dumps(LLAMA))
    training = Training(seq=64, fp8_parameters=True)
    found = estimate(EstimateRequest(documents=(document,), training=training))
    assert "training.fp8_parameters: read with fp8 only" in found.ignored_inputs


def test_a_recipe_without_a_format_is_listed_and_changes_nothing() -> None:
    found, plain = asked(fp8_recipe="mxfp8", fp8_param_gather=True), asked()
    assert found.peak == plain.peak
    assert [each.rpartition(" ")[2] for each in found.ignored_inputs] == [
        "fp8-recipe",
        "fp8-param-gather",
    ]


def test_tables_and_routers_of_other_families_have_no_copies() -> None:
    names = ("embed_tokens", "transformer.wte", "mlp.gate", "mlp.shared_expert_gate", "lm_head")
    for name in names:
        assert not is_multiplied(Parameter(f"model.{name}.weight", (8, 8)))
    assert is_multiplied(Parameter("model.layers.0.mlp.gate_proj.weight", (8, 8)))
    assert not is_multiplied(Parameter("model.layers.0.mlp.gate_proj.bias", (8, 8)))
