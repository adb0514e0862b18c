"""Finetuning from keywords: names of modules beside ours, and what is refused at its field."""

from typing import Any

import pytest

from haversack import requests
from haversack.errors import InvalidRequestError
from haversack.finetuning import LAYER_TARGETS, Finetuning, Quantizer, StoredWeights


def finetuning(**keywords: Any) -> Finetuning | None:
    return requests.estimate_request(parameter_count=1, **keywords).training.finetuning


def test_without_keywords_every_weight_trains() -> None:
    assert finetuning() is None


def test_adapters_are_named_as_transformers_names_modules() -> None:
    made = finetuning(lora_rank=16, lora_targets="q_proj, v_proj", quantize="nf4-double")
    assert made == Finetuning(
        rank=16, targets=("query", "value"), frozen_weights=StoredWeights.NF4_DOUBLE
    )


def test_what_quantizes_is_named_by_its_date() -> None:
    made = finetuning(lora_rank=8, quantize="nf4-double", quantized_by="torchtune-2024-04")
    assert made is not None
    assert made.quantized_by is Quantizer.TORCHTUNE_2024_04


def test_lists_and_our_own_names_will_do_too() -> None:
    made = finetuning(lora_rank=8, lora_targets=["query", "q_proj", "head"], trained_parts="norms")
    assert made == Finetuning(rank=8, targets=("query", "head"), trained_parts=("norms",))


def test_a_variation_parts_names_with_plus_signs() -> None:
    made = finetuning(lora_rank=8, lora_targets="q_proj+k_proj")
    assert made is not None
    assert made.targets == ("query", "key")


def test_all_linear_is_every_product_of_a_layer() -> None:
    made = finetuning(lora_rank=8, lora_targets="all-linear")
    assert made is not None
    assert made.targets == LAYER_TARGETS


@pytest.mark.parametrize(
    ("keywords", "field"),
    [
        ({"lora_rank": 0}, "training.finetuning.rank"),
        ({"lora_targets": "q_proj"}, "training.finetuning.rank"),
        ({"lora_rank": 8, "lora_targets": "c_attn"}, "training.finetuning.targets[0]"),
        ({"lora_rank": 8, "quantize": "fp4"}, "training.finetuning.frozen_weights"),
        (
            {"lora_rank": 8, "quantize": "nf4", "quantized_by": "torchtune-2024-04"},
            "training.finetuning.quantized_by",
        ),
        ({"lora_rank": 8, "quantized_by": "torchao"}, "training.finetuning.quantized_by"),
        ({"trained_parts": "bias"}, "training.finetuning.trained_parts[0]"),
        ({"lora_rank": 8, "finetuning": Finetuning(rank=8)}, "training.finetuning"),
    ],
)
def test_what_will_not_do_is_refused_at_its_field(keywords: Any, field: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        finetuning(**keywords)
    assert refused.value.violations[0].field == field
