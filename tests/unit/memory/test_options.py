"""The option table: one row per way to run each block, and what of the head is logits."""

import json
from dataclasses import replace
from typing import Any

import pytest

from haversack.errors import InvalidRequestError
from haversack_server.memory import kernel_profile
from haversack_server.memory.architecture import Architecture, UnitKind
from haversack_server.memory.attention import AttentionKind
from haversack_server.memory.blocks import Shape
from haversack_server.memory.hf_config import read_hf_config
from haversack_server.memory.options import BlockOptions, option_table, roofline_ns, work_ns
from haversack_server.memory.tape import OptionRow

EAGER = kernel_profile.load("hf-eager")
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "mixtral"]


def model(**changes: Any) -> Architecture:
    return read_hf_config(json.dumps(LLAMA | changes)).architecture


def table(shape: Shape, **changes: Any) -> tuple[BlockOptions, ...]:
    return option_table(model(**changes), EAGER, shape)


def test_there_is_one_entry_per_unit_in_order() -> None:
    blocks = table(Shape(microbatch=1, seq=8))
    assert [block.name for block in blocks] == [unit.name for unit in model().units]
    assert [block.kind for block in blocks] == [unit.kind for unit in model().units]


def test_layers_may_recompute_all_or_their_attention_and_the_others_save() -> None:
    for block in table(Shape(microbatch=1, seq=8)):
        names = ["save", "recompute", "selective"] if block.kind is UnitKind.LAYER else ["save"]
        assert [row.name for row in block.options] == names


def test_equal_layers_share_their_rows() -> None:
    first, *rest = table(Shape(microbatch=1, seq=8))[1:-1]
    assert all(block.options is first.options for block in rest)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("attention", [AttentionKind.FLASH, AttentionKind.EAGER])
def test_recompute_retains_the_output_and_peaks_no_lower_than_what_it_rebuilds(
    family: str, attention: AttentionKind
) -> None:
    layer = table(Shape(microbatch=2, seq=16, attention=attention), model_type=family)[1]
    save, recompute = layer.option("save"), layer.option("recompute")
    assert recompute.retained_bytes == layer.output_bytes == 2 * 16 * 64 * 2
    assert recompute.retained_bytes < save.retained_bytes
    assert recompute.forward_peak_bytes < save.forward_peak_bytes
    assert recompute.backward_peak_bytes >= save.backward_peak_bytes
    assert save.flops == 0
    assert 0 < recompute.flops <= layer.forward_flops


@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_without_scores_grow_with_the_microbatch(family: str) -> None:
    one, two = (table(Shape(microbatch=n, seq=16), model_type=family)[1] for n in (1, 2))
    rows = zip(one.options, two.options, strict=True)
    assert all(b.retained_bytes > 1.9 * a.retained_bytes for a, b in rows)


def test_flash_keeps_no_scores_and_eager_six_bytes_of_each() -> None:
    # Eager alone: softmax in fp32, its copy in bf16, repeated keys and values (from 2 heads to 4,
    # 16 wide); its result is copied, so the copy is kept and not the result. Flash alone: keys
    # and values as they are, and the logsumexp.
    scores, heads = 4 * 32 * 32, 32 * 16 * 2
    flash, eager = (
        table(Shape(microbatch=1, seq=32, attention=kind))[1].option("save").retained_bytes
        for kind in (AttentionKind.FLASH, AttentionKind.EAGER)
    )
    assert eager - flash == 6 * scores + 2 * (4 - 2) * heads - 4 * 32 * 4


def test_a_llama_layer_keeps_what_is_counted_by_hand() -> None:
    # 8 tokens, h=64, q 64, k and v 32 each, ffn 176, bf16. Norms: x in fp32, the product in bf16,
    # their result, the root, twice; q, k, v, attention's result, logsumexp; gate, its activation,
    # up, their product; and the output.
    norms = 2 * (64 * 4 + 64 * 2 + 64 * 2 + 4)
    attention = 2 * (64 + 32 + 32 + 64) + 4 * 4
    feed_forward = 4 * 176 * 2
    by_hand = 8 * (norms + attention + feed_forward + 64 * 2)
    assert table(Shape(microbatch=1, seq=8))[1].option("save").retained_bytes == by_hand


def test_logits_peak_at_ten_bytes_in_forward_and_twelve_in_backward() -> None:
    logits = table(Shape(microbatch=1, seq=8), vocab_size=1000)[-1].logits
    assert logits is not None
    count, labels, weight, loss = 8 * 1000, 9 * 8, 4, 4
    assert logits.count == count
    assert logits.retained_bytes == 4 * count + labels + weight + loss
    assert logits.forward_peak_bytes == 10 * count + labels + weight + loss
    # The loss's own gradient is alive too while the log-likelihood's runs, but not at the peak.
    assert logits.backward_peak_bytes == 12 * count
    assert logits.held_by_caller_bytes == 2 * count


def test_fp32_logits_are_not_copied() -> None:
    logits = table(Shape(microbatch=1, seq=8, compute_bytes=4), vocab_size=1000)[-1].logits
    assert logits is not None
    assert logits.forward_peak_bytes // (8 * 1000) == 8
    assert logits.held_by_caller_bytes == 4 * 8 * 1000


def test_a_soft_cap_keeps_its_tanh() -> None:
    shape = Shape(microbatch=1, seq=8)
    plain, capped = (
        table(shape, model_type="gemma2", vocab_size=1000, final_logit_softcapping=cap)[-1].logits
        for cap in (None, 30.0)
    )
    assert plain is not None
    assert capped is not None
    assert capped.retained_bytes - plain.retained_bytes == 2 * 8 * 1000


def test_all_logits_are_on_every_rank_unless_the_profile_splits_them() -> None:
    shape = Shape(microbatch=1, seq=8, tp=2)
    splitting = replace(EAGER, tensor_parallel_splits_logits=True)
    counts = []
    for profile in (EAGER, splitting):
        logits = option_table(model(), profile, shape)[-1].logits
        assert logits is not None
        counts.append(logits.count)
    assert counts == [800, 400]


def test_tensor_parallelism_splits_heads_and_feed_forward_and_sequence_parallelism_the_rest() -> (
    None
):
    whole, split, sequence = (
        option_table(model(), EAGER, shape)[1].option("save").retained_bytes
        for shape in (
            Shape(microbatch=1, seq=32),
            Shape(microbatch=1, seq=32, tp=2),
            Shape(microbatch=1, seq=32, tp=2, sequence_parallel=True),
        )
    )
    norms_and_output = 32 * (2 * (64 * 4 + 64 * 2 + 64 * 2 + 4) + 64 * 2)
    assert split == norms_and_output + (whole - norms_and_output) // 2
    # The gathered inputs of the products are kept whole; what is left of the norms is split.
    gathered = 2 * 32 * 64 * 2
    kept_split = norms_and_output - gathered
    assert sequence == (whole - norms_and_output) // 2 + kept_split // 2 + gathered


def test_a_window_makes_sdpa_repeat_keys_and_keep_a_mask() -> None:
    shape = Shape(microbatch=1, seq=32, attention=AttentionKind.SDPA)
    free, bound = (
        table(shape, model_type="mistral", sliding_window=window)[1].option("save").retained_bytes
        for window in (33, 32)
    )
    assert bound - free == 2 * (4 - 2) * 32 * 16 * 2 + 32 * 32 * 2


def test_the_embedding_keeps_what_all_layers_share() -> None:
    block = table(Shape(microbatch=2, seq=8))[0]
    assert block.output_bytes == 2 * 8 * 64 * 2
    tables, positions = 2 * 8 * 16 * 2, 8 * 8
    assert block.option("save").retained_bytes == block.output_bytes + tables + positions


@pytest.mark.parametrize(("tp", "divisors"), [(3, "1, 2"), (4, "1, 2")])
def test_a_degree_that_does_not_divide_the_heads_is_refused(tp: int, divisors: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        table(Shape(microbatch=1, seq=8, tp=tp))
    assert caught.value.field == "parallelism.tp"
    assert f"tp={tp} does not divide" in str(caught.value)
    assert f"use one of {divisors}" in str(caught.value)


def test_a_sequence_beyond_learned_positions_is_refused() -> None:
    gpt2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 4, "vocab_size": 10}
    with pytest.raises(InvalidRequestError) as caught:
        option_table(
            read_hf_config(json.dumps(gpt2)).architecture, EAGER, Shape(microbatch=1, seq=2048)
        )
    assert caught.value.field == "training.seq"
    assert "use at most 1024" in str(caught.value)


def test_sdpa_is_refused_where_scores_are_capped() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        table(Shape(microbatch=1, seq=8, attention=AttentionKind.SDPA), model_type="gemma2")
    assert caught.value.field == "training.attention"


def test_a_roofline_is_the_sum_of_what_bounds_each_operation() -> None:
    row = OptionRow(
        name="recompute",
        retained_bytes=0,
        forward_peak_bytes=0,
        backward_peak_bytes=0,
        flops=300,
        moved_bytes=30,
        work=((200, 10), (100, 20)),
    )
    # At 100 FLOP/s and 10 B/s: max(2, 1) + max(1, 2) seconds.
    assert roofline_ns(row, flops_per_s=100, bytes_per_s=10) == 4_000_000_000


def test_a_roofline_is_rounded_up() -> None:
    assert work_ns(((1, 0),), flops_per_s=3e9, bytes_per_s=1.0) == 1
    assert work_ns((), flops_per_s=1.0, bytes_per_s=1.0) == 0
