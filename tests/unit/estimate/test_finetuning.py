"""Estimates of runs in which most weights are frozen: states, terms, and what is not known."""

import json
from typing import Any

import pytest

from haversack import Estimate, EstimateRequest, EstimateVerdict, InvalidRequestError
from haversack.finetuning import Finetuning, Quantizer, StoredWeights
from haversack.parallelism import Parallelism, Sharding
from haversack.run import Device, Document, DocumentFormat, Precision, Recompute, Training
from haversack_server.estimate.answer import estimate

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 1000,
}
RANK = 8
PARAMETERS = 2 * 1000 * 512 + 4 * (4 * 512 * 512 + 3 * 512 * 1408 + 2 * 512) + 512


def answer(
    finetuning: Finetuning | None, sharding: Sharding, profile: str = "", **training: Any
) -> Estimate:
    text = json.dumps(LLAMA)
    return estimate(
        EstimateRequest(
            documents=(Document(format=DocumentFormat.HF_CONFIG, text=text),),
            training=Training(microbatch=1, seq=64, finetuning=finetuning, **training),
            parallelism=Parallelism(world_size=4 if sharding else None, sharding=sharding),
            device=Device(memory_bytes=2**36),
            kernel_profile=profile,
        )
    )


def alone(finetuning: Finetuning | None, profile: str = "", **training: Any) -> Estimate:
    return answer(finetuning, Sharding.UNSPECIFIED, profile, **training)


def phases(result: Estimate) -> dict[str, int]:
    return {phase.name: phase.peak_bytes for phase in result.phases}


def term(result: Estimate, name: str) -> int:
    """The largest bytes of a term; 0 where there is none."""
    return next((row.largest_bytes for row in result.terms if row.name == name), 0)


def test_frozen_weights_have_neither_gradients_nor_optimizer_state() -> None:
    trained = 4 * 2 * RANK * (512 + 512)
    result = alone(Finetuning(rank=RANK))
    # bf16 for all weights; gradient and two moments in bf16 for the adapters.
    assert result.steady_bytes == 2 * (PARAMETERS + trained) + 6 * trained


def test_adapters_in_fp32_have_everything_in_fp32() -> None:
    trained = 4 * 2 * RANK * (512 + 512)
    result = alone(Finetuning(rank=RANK, adapter_in_fp32=True))
    assert result.steady_bytes == 2 * PARAMETERS + 16 * trained


def test_a_quantized_base_is_stored_in_a_quarter() -> None:
    whole = alone(Finetuning(rank=RANK)).steady_bytes
    small = alone(Finetuning(rank=RANK, frozen_weights=StoredWeights.NF4)).steady_bytes
    products = 4 * (4 * 512 * 512 + 3 * 512 * 1408)
    assert whole - small == products * 2 - products * 9 // 16


def test_adapters_take_less_than_all_weights_and_more_with_rank_and_targets() -> None:
    def peak(finetuning: Finetuning | None) -> int:
        result = alone(finetuning, precision=Precision.BF16).peak
        assert result is not None
        return result.allocated.expected_bytes

    everywhere = ("query", "key", "value", "output", "gate", "up", "down")
    few, more = Finetuning(rank=RANK), Finetuning(rank=64)
    most = Finetuning(rank=64, targets=everywhere)
    assert peak(few) < peak(more) < peak(most) < peak(None)


def test_parts_that_train_whole_are_counted() -> None:
    result = alone(Finetuning(trained_parts=("norms",)))
    norms = (4 * 2 + 1) * 512
    assert result.steady_bytes == 2 * PARAMETERS + 6 * norms


@pytest.mark.parametrize("sharding", [Sharding.FSDP2, Sharding.ZERO_3])
def test_frozen_weights_are_sharded_with_the_others(sharding: Sharding) -> None:
    result = answer(Finetuning(rank=RANK), sharding)
    assert 2 * PARAMETERS // 4 <= result.steady_bytes < 2 * PARAMETERS


def test_a_quantized_base_that_is_sharded_is_not_known() -> None:
    quantized = Finetuning(rank=RANK, frozen_weights=StoredWeights.NF4)
    result = answer(quantized, Sharding.FSDP2)
    assert result.verdict is EstimateVerdict.UNKNOWN
    assert any("frozen_weights" in sentence for sentence in result.not_modelled)


def test_targets_that_are_none_of_ours_are_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Finetuning(rank=RANK, targets=("q_proj",))
    assert "training.finetuning.targets[0]" in str(caught.value)
    assert "query, key, value" in str(caught.value)


def test_a_run_in_which_nothing_trains_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="nothing would train"):
        Finetuning()


def test_a_quantizer_without_what_it_stores_is_refused_with_what_would_do() -> None:
    with pytest.raises(InvalidRequestError, match="--quantize nf4-double") as caught:
        Finetuning(rank=RANK, quantized_by=Quantizer.TORCHTUNE_2024_08)
    assert caught.value.field == "training.finetuning.quantized_by"


@pytest.mark.parametrize("sharding", [Sharding.UNSPECIFIED, Sharding.FSDP2])
def test_gradients_are_those_of_the_adapters_under_accumulation_and_in_shards(
    sharding: Sharding,
) -> None:
    result = answer(Finetuning(rank=RANK), sharding, accumulation=2)
    trained = 4 * 2 * RANK * (512 + 512)
    # Those that stand, and new ones of one layer.
    assert term(result, "gradients") <= 2 * trained + 2 * trained // 4
    assert term(result, "reduce buffers") <= 2 * 2 * trained


def test_inputs_of_quantized_products_stay_until_the_next_loss_where_a_loop_names_the_graph() -> (
    None
):
    quantized = Finetuning(rank=RANK, frozen_weights=StoredWeights.NF4)
    result = alone(quantized, "litgpt", accumulation=2)
    found = phases(result)
    tokens = 64 * 2
    # Of each layer: two norms, the result of attention, and the active part of the feed-forward.
    kept = 4 * tokens * (3 * 512 + 1408)
    assert term(result, "inputs kept by the graph before") == kept
    adapters = 2 * 4 * 2 * RANK * (512 + 512)
    logits_before = term(result, "logits held by the caller")
    first, later = (found[f"step 1 {name} microbatch loss"] for name in ("first", "later"))
    assert later - first == kept + adapters + logits_before
    assert term(alone(quantized, accumulation=2), "inputs kept by the graph before") == 0


def test_no_checkpoint_drops_what_a_quantized_product_keeps_in_an_attribute() -> None:
    quantized = Finetuning(rank=RANK, frozen_weights=StoredWeights.NF4)
    result = alone(quantized, "litgpt", recompute=Recompute.FULL)
    assert result.verdict is EstimateVerdict.UNKNOWN
    assert any("under litgpt" in sentence for sentence in result.not_modelled)
    assert alone(quantized, recompute=Recompute.FULL).peak is not None
