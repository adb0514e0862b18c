"""Selective recomputation as torchtitan does it: every second product of a layer is kept."""

import pytest

from haversack_server.memory.architecture import Architecture
from haversack_server.memory.blocks import Shape
from haversack_server.memory.hf_config import read_hf_config
from haversack_server.memory.kernel_profile import load
from haversack_server.memory.options import option_table

TEXT = """{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1,
 "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 50}"""
HIDDEN, KEYS, FFN, HEADS, BYTES = 64, 32, 96, 4, 2


@pytest.fixture
def model() -> Architecture:
    return read_hf_config(TEXT).architecture


def test_every_second_product_and_attention_are_kept(model: Architecture) -> None:
    shape = Shape(microbatch=1, seq=128)
    layer = option_table(model, load("torchtitan-eager"), shape)[1]
    # query (1st), value (3rd), gate (5th) and down (7th); attention with its logsumexp in fp32;
    # and the layer's output.
    kept = HIDDEN + KEYS + FFN + HIDDEN + HIDDEN + HIDDEN
    assert layer.option("selective").retained_bytes == 128 * (kept * BYTES + HEADS * 4)


def test_it_lies_between_saving_and_recomputing(model: Architecture) -> None:
    layer = option_table(model, load("torchtitan-eager"), Shape(microbatch=2, seq=64))[1]
    save, full, chosen = (layer.option(name) for name in ("save", "recompute", "selective"))
    assert full.retained_bytes < chosen.retained_bytes < save.retained_bytes
    assert 0 < chosen.flops < full.flops
    assert chosen.backward_peak_bytes >= chosen.retained_bytes


def test_without_it_the_attention_core_runs_again(model: Architecture) -> None:
    layer = option_table(model, load("hf-eager"), Shape(microbatch=1, seq=128))[1]
    assert layer.option("selective").retained_bytes < layer.option("save").retained_bytes
