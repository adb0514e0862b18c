"""The variants of the loss, by their heights per logit; sizes are round, so a logit has 2 bytes."""

from dataclasses import replace

import pytest

from haversack.run import Loss
from haversack_server.memory.blocks import Shape, logits_tape
from haversack_server.memory.hf_config import read_hf_config
from haversack_server.memory.kernel_profile import load
from haversack_server.memory.tape import OptionRow, measure

PROFILE = load("hf-eager")
MODEL = read_hf_config(
    """{"model_type": "llama", "hidden_size": 8, "intermediate_size": 16,
    "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 65536,
    "tie_word_embeddings": false}"""
).architecture
ROWS = 512
LOGITS = ROWS * MODEL.vocab
SMALL = 2**17  # labels, hidden states and the loss beside the logits


def row(loss: Loss, **shape: int | bool) -> OptionRow:
    made = Shape(microbatch=1, seq=ROWS, loss=loss, **shape)  # type: ignore[arg-type]
    return measure(logits_tape(MODEL, PROFILE, made), save=True)


@pytest.mark.parametrize(
    ("loss", "forward", "kept", "backward"),
    [
        (Loss.PLAIN, 4, 2, 6),
        (Loss.FP32, 10, 4, 12),
        (Loss.FP32_IN_PLACE, 6, 4, 6),
        (Loss.IN_PLACE, 2, 2, 2),
        (Loss.CHUNKED, 6.5, 4, 5.25),
    ],
)
def test_bytes_per_logit(loss: Loss, forward: float, kept: float, backward: float) -> None:
    """Forward and backward heights and what stays between, in bytes per bf16 logit."""
    made = row(loss)
    for size_bytes, each in (
        (made.forward_peak_bytes, forward),
        (made.retained_bytes, kept),
        (made.backward_peak_bytes, backward),
    ):
        assert 0 <= size_bytes - each * LOGITS < SMALL


def test_a_fused_linear_loss_holds_one_chunk_of_logits_and_the_gradients() -> None:
    made = row(Loss.FUSED_LINEAR, loss_chunks=4)
    weight = MODEL.vocab * MODEL.hidden * 2
    assert 0 <= made.forward_peak_bytes - (LOGITS // 4 * 6 + weight) < SMALL
    assert 0 <= made.retained_bytes - weight < SMALL


def test_more_chunks_never_need_more() -> None:
    for loss in (Loss.CHUNKED, Loss.FUSED_LINEAR):
        peaks = [row(loss, loss_chunks=chunks).forward_peak_bytes for chunks in (1, 2, 8, 64)]
        assert peaks == sorted(peaks, reverse=True)


def test_split_logits_are_a_share_of_them() -> None:
    whole = row(Loss.FP32, tp=2, loss_parallel=False)
    split = row(Loss.FP32, tp=2, loss_parallel=True)
    assert 0 <= whole.retained_bytes - 2 * split.retained_bytes + SMALL < 2 * SMALL


def test_the_profile_names_the_loss_of_its_framework() -> None:
    assert row(Loss.UNSPECIFIED) == row(Loss.FP32)
    in_place = replace(PROFILE, loss="fp32_in_place")
    shape = Shape(microbatch=1, seq=ROWS)
    assert measure(logits_tape(MODEL, in_place, shape), save=True) == row(Loss.FP32_IN_PLACE)
