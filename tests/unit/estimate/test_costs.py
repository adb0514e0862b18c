"""What changes save and cost: knobs, collectives, and the cheapest change that fits."""

from dataclasses import replace

import pytest

from haversack.estimate import Estimate, EstimateRequest, EstimateVerdict, WhatIf
from haversack.parallelism import Parallelism, Sharding
from haversack.questions import CollectiveKind, EstimateQuestion, FittingChange
from haversack.requests import estimate_request
from haversack.run import Device, Document, DocumentFormat, Optimizer, Recompute, Training
from haversack_server.estimate.answer import estimate
from haversack_server.estimate.knobs import knobs

SMALL = Document(
    format=DocumentFormat.HF_CONFIG,
    text="""{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
    "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4,
    "vocab_size": 1000, "max_position_embeddings": 512, "tie_word_embeddings": false}""",
)
ELEMENTS = 2 * 1000 * 256 + 3 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512 + 2 * 256) + 256
STREAM_BYTES = 2 * 128 * 256 * 2  # microbatch x seq x hidden, bf16


def answered(parallelism: Parallelism, training: Training | None = None) -> Estimate:
    return estimate(
        EstimateRequest(
            documents=(SMALL,),
            training=training or Training(microbatch=2, seq=128),
            parallelism=parallelism,
            questions=(EstimateQuestion.COLLECTIVES,),
        )
    )


def sent(answer: Estimate) -> dict[tuple[CollectiveKind, str], tuple[int, int]]:
    return {
        (each.kind, each.axis): (each.count, each.bytes_per_rank) for each in answer.collectives
    }


def test_the_row_that_offloads_all_is_what_the_option_asks() -> None:
    ranks = Parallelism(world_size=4, sharding=Sharding.ZERO_3)
    asked = EstimateRequest(
        documents=(SMALL,), training=Training(microbatch=2, seq=128), parallelism=ranks
    )
    rows = {each.name: each.parallelism for each in knobs(asked, has_experts=False)}
    assert rows["offload all"] == estimate_request(model={}, offload="all").parallelism
    assert "fsdp version 1" in rows


def test_one_rank_sends_nothing() -> None:
    assert answered(Parallelism()).collectives == ()


# ZeRO paper, section 7: stages 1 and 2 move 2 psi, stage 3 moves 3 psi.
def test_zero_moves_what_its_paper_says() -> None:
    volumes = {
        stage: sum(each.bytes_per_rank for each in answered(spread).collectives)
        for stage in (Sharding.ZERO_1, Sharding.ZERO_2, Sharding.ZERO_3)
        for spread in [Parallelism(world_size=4, sharding=stage)]
    }
    share = 2 * ELEMENTS * 3 // 4  # bf16, from three of four ranks
    assert volumes[Sharding.ZERO_1] == pytest.approx(2 * share, rel=1e-4)
    assert volumes[Sharding.ZERO_2] == pytest.approx(2 * share, rel=1e-4)
    assert volumes[Sharding.ZERO_3] == pytest.approx(3 * share, rel=1e-4)


def test_replicas_reduce_everything_once_a_step() -> None:
    ranks = Parallelism(world_size=4)
    accumulated = Training(microbatch=2, seq=128, accumulation=8)
    key = (CollectiveKind.ALL_REDUCE, "dp_replicate=4")
    assert sent(answered(ranks))[key] == (1, 2 * 2 * ELEMENTS * 3 // 4)
    assert sent(answered(ranks, accumulated))[key] == sent(answered(ranks))[key]


def test_gathers_and_reductions_come_with_every_microbatch() -> None:
    sharded = Parallelism(world_size=4, sharding=Sharding.ZERO_3)
    once, often = (
        sent(answered(sharded, Training(microbatch=2, seq=128, accumulation=times)))
        for times in (1, 8)
    )
    for key, (count, size) in once.items():
        assert often[key] == (8 * count, 8 * size)
    gathers = once[CollectiveKind.ALL_GATHER, "dp_shard=4"]
    assert gathers[0] == 2 * 5  # embedding, three layers and head, in forward and in backward


def test_units_that_are_kept_are_gathered_once() -> None:
    fsdp = Parallelism(world_size=4, sharding=Sharding.FSDP2)
    freed, kept = (
        sent(answered(spread))[CollectiveKind.ALL_GATHER, "dp_shard=4"]
        for spread in (fsdp, replace(fsdp, reshard_after_forward=False))
    )
    assert freed == (2 * kept[0], 2 * kept[1])


# Megatron-LM, section 3: two all-reduces of the stream in each layer's forward, two more back.
def test_tensor_parallelism_sums_the_stream_twice_each_way() -> None:
    split = Parallelism(world_size=2, tp=2)
    count, size = sent(answered(split))[CollectiveKind.ALL_REDUCE, "tp=2"]
    assert (count, size) == (12, 12 * STREAM_BYTES)
    again = Training(microbatch=2, seq=128, recompute=Recompute.FULL)
    assert sent(answered(split, again))[CollectiveKind.ALL_REDUCE, "tp=2"][0] == 18
    together = replace(split, sequence_parallel=True)
    kinds = {each.kind for each in answered(together).collectives if each.name == "residual stream"}
    assert kinds == {CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER}


def test_every_collective_has_a_formula_and_a_source() -> None:
    spread = Parallelism(world_size=8, tp=2, dp_replicate=2, sharding=Sharding.FSDP2)
    found = answered(spread).collectives
    assert len(found) >= 4
    for each in found:
        assert each.formula
        assert each.source
        assert each.count > 0


def test_knobs_are_answered_as_variations_and_sorted() -> None:
    base = EstimateRequest(
        documents=(SMALL,),
        training=Training(microbatch=2, seq=128),
        parallelism=Parallelism(world_size=8, sharding=Sharding.ZERO_1),
        questions=(EstimateQuestion.KNOBS, EstimateQuestion.COLLECTIVES),
    )
    found = estimate(base).what_ifs
    deltas = [each.delta_bytes or 0 for each in found]
    assert deltas == sorted(deltas)
    names = {each.name for each in found}
    assert {"zero 0", "zero 2", "zero 3", "fsdp", "recompute full", "microbatch 1"} <= names
    assert {"tp 2", "tp 4", "seq 64", "attention eager", "optimizer sgd"} <= names
    assert "zero 1" not in names
    assert "tp 8" not in names  # four key/value heads
    full = next(each for each in found if each.name == "recompute full")
    named = WhatIf(name="recompute full", training=Training(recompute=Recompute.FULL))
    alone = replace(base, what_ifs=(named,), questions=(EstimateQuestion.COLLECTIVES,))
    assert estimate(alone).what_ifs == (full,)
    assert full.recompute_ns


def test_named_variations_keep_their_order_before_the_knobs() -> None:
    named = tuple(
        WhatIf(name=name, training=Training(microbatch=size))
        for name, size in (("more", 4), ("less", 1))
    )
    base = EstimateRequest(
        documents=(SMALL,),
        training=Training(microbatch=2, seq=128),
        what_ifs=named,
        questions=(EstimateQuestion.KNOBS,),
    )
    assert [each.name for each in estimate(base).what_ifs[:2]] == ["more", "less"]


def fitting(memory_bytes: int, training: Training) -> Estimate:
    return estimate(
        EstimateRequest(
            documents=(SMALL,),
            training=training,
            parallelism=Parallelism(world_size=4),
            device=Device(memory_bytes=memory_bytes),
            questions=(EstimateQuestion.CHEAPEST_CHANGE,),
        )
    )


def test_changes_that_fit_fit_and_the_cheapest_comes_first() -> None:
    training = Training(microbatch=8, seq=512, optimizer=Optimizer.ADAMW_FOREACH)
    peak = fitting(2**60, training).peak
    assert peak is not None
    limit = peak.device.expected_bytes - 2**20
    found = fitting(limit, training).fitting_changes
    assert found
    order = [(each.extra_gpus, each.extra_ns) for each in found]
    assert order == sorted(order)
    for each in found:
        assert each.limited.high_bytes <= limit
        assert each.delta_bytes < 0
    ties = [each for each in found if each.change.startswith("microbatch")]
    assert [each.change.split(",")[0] for each in ties] == [
        f"microbatch {size}" for size in (4, 2, 1)
    ]
    halved = next(each for each in found if each.change.startswith("microbatch 4"))
    assert halved.change == "microbatch 4, accumulation 2"


def changes_of(microbatch: int, parallelism: Parallelism) -> tuple[FittingChange, ...]:
    """Ask what would fit where a run is one byte too large."""
    run = EstimateRequest(
        documents=(SMALL,),
        training=Training(microbatch=microbatch, seq=512),
        parallelism=parallelism,
        questions=(EstimateQuestion.CHEAPEST_CHANGE,),
    )
    peak = estimate(run).peak
    assert peak is not None
    tight = Device(memory_bytes=peak.device.high_bytes - 1)
    return estimate(replace(run, device=tight)).fitting_changes


def test_what_keeps_to_the_devices_comes_before_what_is_faster_on_more() -> None:
    found = changes_of(4, Parallelism(world_size=2, sharding=Sharding.ZERO_2))
    here = [each.extra_ns for each in found if not each.extra_gpus]
    spread = [each.extra_ns for each in found if each.extra_gpus]
    assert min(spread) < max(here)  # or the order of the two keys would not show
    assert [each.extra_ns for each in found] == here + spread
    assert here == sorted(here)


def test_ranks_of_the_run_share_a_sequence_where_one_is_too_long_for_each() -> None:
    found = changes_of(1, Parallelism(world_size=4, sharding=Sharding.ZERO_3))
    shared = next(each for each in found if each.change == "cp 4, accumulation 4")
    assert shared.extra_gpus == 0
    assert shared.extra_sent_bytes > 0


def test_a_run_that_fits_needs_no_change() -> None:
    found = fitting(2**60, Training(microbatch=8, seq=512))
    assert found.verdict is EstimateVerdict.FITS
    assert found.fitting_changes == ()


def test_two_changes_are_tried_where_none_is_enough_alone() -> None:
    training = Training(microbatch=8, seq=512)
    whole = fitting(2**60, training).peak
    assert whole is not None
    alone = fitting(whole.device.high_bytes - 1, training).fitting_changes
    assert not any(" + " in each.change for each in alone)
    limit = min(each.limited.high_bytes for each in alone) - 1
    found = fitting(limit, training).fitting_changes
    assert found
    assert all(" + " in each.change for each in found)
    assert not any(each.extra_gpus for each in found)


def test_more_devices_come_with_another_change_where_nothing_else_is_enough() -> None:
    """What activations take is not divided by more GPUs, and states are not by recomputation."""
    run = EstimateRequest(
        documents=(SMALL,),
        training=Training(microbatch=1, seq=512),
        parallelism=Parallelism(world_size=4, sharding=Sharding.ZERO_3, reduce_bucket_elements=1),
        questions=(EstimateQuestion.CHEAPEST_CHANGE,),
    )
    lowest = replace(
        run,
        training=Training(microbatch=1, seq=512, recompute=Recompute.FULL),
        parallelism=replace(run.parallelism, world_size=32),
    )
    peak = estimate(lowest).peak
    assert peak is not None
    limit = peak.device.high_bytes
    found = estimate(replace(run, device=Device(memory_bytes=limit))).fitting_changes
    assert "recompute full + 32 GPUs" in [each.change for each in found]
    assert all(each.extra_gpus and " + " in each.change for each in found)
    assert all(each.limited.high_bytes <= limit for each in found)
