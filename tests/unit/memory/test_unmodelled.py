"""What some models cannot be divided into yet is named, and gets no figure."""

from typing import Any

import pytest

from haversack.estimate import EstimateRequest, EstimateVerdict
from haversack.parallelism import Parallelism
from haversack.run import Budget, Document, DocumentFormat, Training
from haversack.units import GIB
from haversack_server.estimate.answer import estimate

T5 = """{"model_type": "t5", "d_model": 64, "d_ff": 128, "d_kv": 16, "num_layers": 2,
"num_decoder_layers": 2, "num_heads": 4, "vocab_size": 64, "feed_forward_proj": "relu",
"relative_attention_num_buckets": 8}"""
BLOOM = """{"model_type": "bloom", "hidden_size": 64, "n_layer": 2, "n_head": 4,
"vocab_size": 64}"""
LLAMA = """{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 64}"""


def verdict(text: str, **axes: Any) -> tuple[EstimateVerdict, str]:
    found = estimate(
        EstimateRequest(
            documents=(Document(format=DocumentFormat.HF_CONFIG, text=text),),
            training=Training(microbatch=1, seq=64),
            parallelism=Parallelism(**axes),
            budget=Budget(bytes=80 * GIB),
        )
    )
    return found.verdict, found.not_modelled[0]


@pytest.mark.parametrize(
    ("text", "axes", "words"),
    [
        (T5, {"pp": 2}, "pp=2 of an encoder and a decoder"),
        (T5, {"cp": 2}, "cp=2 of an encoder and a decoder"),
        (BLOOM, {"cp": 2}, "cp=2 of attention with linear biases"),
    ],
)
def test_a_division_that_is_not_known_of_a_model_gets_no_figure(
    text: str, axes: dict[str, int], words: str
) -> None:
    unknown, why = verdict(text, **axes)
    assert unknown is EstimateVerdict.UNKNOWN
    assert words in why


@pytest.mark.parametrize("axes", [{"pp": 2}, {"cp": 2}, {"pp": 2, "cp": 2, "world_size": 8}])
def test_a_stack_of_layers_has_figures(axes: dict[str, int]) -> None:
    assert verdict(LLAMA, **axes)[0] is EstimateVerdict.FITS
