"""Estimates of runs whose weights are quantized while the model is loaded."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.estimate.test_finetuning import LLAMA

from haversack import Estimate, EstimateRequest, EstimateVerdict, InvalidRequestError
from haversack.estimate import Phase
from haversack.finetuning import LAYER_TARGETS, Finetuning, Quantizer, StoredWeights
from haversack.parallelism import Parallelism, Sharding
from haversack.run import Device, Document, DocumentFormat, Precision, Recompute, Training
from haversack_server.estimate.answer import estimate
from haversack_server.memory.model_run import model_run
from haversack_server.memory.timeline import bases

LLAMA_2_7B = LLAMA | {
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32_000,
}
NF4 = Finetuning(rank=8, targets=LAYER_TARGETS, frozen_weights=StoredWeights.NF4_DOUBLE)
APRIL = replace(NF4, quantized_by=Quantizer.TORCHTUNE_2024_04)
AUGUST = replace(NF4, quantized_by=Quantizer.TORCHTUNE_2024_08)
GB = 10**9


def request(finetuning: Finetuning, model: Any = LLAMA, **more: Any) -> EstimateRequest:
    training = Training(
        microbatch=2, seq=512, recompute=Recompute.FULL, finetuning=finetuning, **more
    )
    document = Document(format=DocumentFormat.HF_CONFIG, text=json.dumps(model))
    return EstimateRequest(
        documents=(document,),
        training=training,
        device=Device(memory_bytes=24 * GB),
        kernel_profile="torchtune-eager",
    )


def quantizing(answer: Estimate) -> Phase:
    return next(phase for phase in answer.phases if phase.name == "quantizing")


def test_the_loading_of_a_published_run_is_its_peak() -> None:
    answer = estimate(request(APRIL, LLAMA_2_7B))
    assert answer.peak is not None
    assert answer.peak_phase == "quantizing"
    held = quantizing(answer).reserved_bytes
    assert held is not None
    # torchtune, docs/source/tutorials/qlora_finetune.rst: 9.13 GB reserved after loading.
    assert held / GB == pytest.approx(9.13, abs=0.006)
    assert answer.peak.reserved.expected_bytes == held
    assert answer.peak.device.expected_bytes == held + answer.peak.outside.expected_bytes


def test_terms_of_the_loading_are_the_weights_and_what_quantizing_takes() -> None:
    answer = estimate(request(APRIL, LLAMA_2_7B))
    at_the_peak = {term.name: term.bytes for term in answer.terms if term.bytes}
    assert at_the_peak.pop("CUDA context")
    assert set(at_the_peak) == {"parameters", "quantizing weights"}
    assert sum(at_the_peak.values()) == quantizing(answer).peak_bytes
    assert at_the_peak["quantizing weights"] > 68 * 4096 * 11_008


def test_chunks_take_less_and_leave_the_peak_to_training() -> None:
    answer, plain = (estimate(request(each, LLAMA_2_7B)) for each in (AUGUST, NF4))
    assert answer.peak is not None
    assert plain.peak is not None
    assert answer.peak.allocated == plain.peak.allocated
    assert answer.peak_phase == plain.peak_phase
    assert quantizing(answer).peak_bytes < answer.peak.allocated.expected_bytes


def test_factors_of_all_blocks_stay_where_they_are_not_copied() -> None:
    early, late = (estimate(request(each)).steady_bytes for each in (APRIL, NF4))
    blocks = 4 * (4 * 512 * 512 + 3 * 512 * 1408) // 64
    groups = sum(4 * 4 * -(-n // 64 // 256) for n in [512 * 512] * 4 + [512 * 1408] * 3)
    scalars = 4 * 7 * 4
    assert early - late == 2 * blocks - groups - scalars


def test_who_says_nothing_of_it_is_told_that_it_is_not_counted() -> None:
    answer = estimate(request(NF4))
    assert not any(phase.name == "quantizing" for phase in answer.phases)
    assert any("quantized_by is not given" in each for each in answer.assumptions)
    said = estimate(request(AUGUST)).assumptions
    assert not any("quantized_by is not given" in each for each in said)
    assert any(each.startswith("reserved bytes: never less") for each in said)


@pytest.mark.parametrize(
    ("finetuning", "more", "named"),
    [
        (replace(AUGUST, head_quantized=True), {}, "quantized_by with a quantized head"),
        (AUGUST, {"precision": Precision.FP32}, "with another precision than BF16"),
    ],
)
def test_what_was_not_read_is_unknown(
    finetuning: Finetuning, more: dict[str, Any], named: str
) -> None:
    answer = estimate(request(finetuning, **more))
    assert answer.verdict is EstimateVerdict.UNKNOWN
    assert any(named in each for each in answer.not_modelled)


def test_several_ranks_are_unknown() -> None:
    ranks = Parallelism(world_size=2, sharding=Sharding.REPLICATED)
    answer = estimate(replace(request(AUGUST), parallelism=ranks))
    assert answer.verdict is EstimateVerdict.UNKNOWN


def test_a_quantizer_of_other_stored_weights_is_refused_at_its_field() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        replace(APRIL, frozen_weights=StoredWeights.NF4)
    assert refused.value.violations[0].field == "training.finetuning.quantized_by"


def test_a_plan_counts_the_loading_too() -> None:
    run = model_run(request(APRIL, LLAMA_2_7B))
    assert run.chain.loading is not None
    assert bases(run.chain).fixed == run.chain.loading.peak_bytes


def test_weights_too_small_to_be_quantized_are_loaded_as_they_are() -> None:
    one = dict.fromkeys(
        ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"), 1
    )
    answer = estimate(request(AUGUST, LLAMA | one | {"head_dim": 2, "vocab_size": 1}))
    assert answer.peak is not None
    assert quantizing(answer).peak_bytes > 0
