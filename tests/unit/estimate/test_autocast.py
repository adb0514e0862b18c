"""Runs under autocast: four that an H200 measured, and settings that are UNKNOWN by name."""

import json
from itertools import pairwise
from typing import Any

import pytest
from tests.bench.estimate_rows import rows

from haversack.estimate import Estimate, EstimateRequest, EstimateVerdict
from haversack.finetuning import Finetuning
from haversack.parallelism import Parallelism, Sharding
from haversack.plan import PlanRequest
from haversack.questions import EstimateQuestion
from haversack.run import (
    Attention,
    Document,
    DocumentFormat,
    Loss,
    Optimizer,
    Precision,
    Recompute,
    Training,
)
from haversack_server.estimate.answer import estimate
from haversack_server.memory.degrees import resolve
from haversack_server.memory.unmodelled import unplanned

ROWS = {row["id"]: row for row in rows("measured_h200.json") if "autocast" in row["id"]}
LLAMA = ROWS["h200-llama-autocast"]["config"]


def documents(config: Any) -> tuple[Document, ...]:
    return (Document(format=DocumentFormat.HF_CONFIG, text=json.dumps(config)),)


def training(**changes: Any) -> Training:
    fields = {"microbatch": 2, "seq": 2048, "precision": Precision.FP32_BF16_COMPUTE}
    return Training(**(fields | changes))


def answer(config: Any = LLAMA, made: Training | None = None, **changes: Any) -> Estimate:
    return estimate(
        EstimateRequest(
            documents=documents(config),
            training=made or training(),
            questions=(EstimateQuestion.BRIEF,),
            **changes,
        )
    )


def peak(found: Estimate) -> int:
    assert found.peak is not None
    return found.peak.allocated.expected_bytes


@pytest.mark.parametrize("name", ROWS)
def test_a_measured_run_is_met_within_half_a_percent(name: str) -> None:
    row = ROWS[name]
    settings = row["settings"]
    made = training(
        microbatch=settings["microbatch"],
        seq=settings["seq"],
        optimizer=Optimizer.ADAMW,
        recompute=Recompute.FULL if settings["recompute"] else Recompute.NONE,
    )
    assert peak(answer(row["config"], made)) == pytest.approx(row["peak_bytes"], rel=0.005)


def test_states_are_those_of_fp32_parameters() -> None:
    count = ROWS["h200-llama-autocast"]["parameters"]
    assert answer().steady_bytes == count * (4 + 4 + 8)


def test_copies_of_weights_stay_through_a_forward_that_keeps_little_else() -> None:
    """Under recomputation a layer keeps its input in fp32, and autocast a copy of each weight."""
    request = EstimateRequest(
        documents=documents(LLAMA),
        training=training(recompute=Recompute.FULL),
        questions=(EstimateQuestion.TIMELINE,),
    )
    found = estimate(request)
    saved = [term.name for term in found.terms].index("saved activations")
    held = {
        each.name: each.term_bytes[saved]
        for each in found.timeline
        if each.phase == "step 2 forward"
    }
    hidden, ffn, keys = 2048, 5632, 1024
    weights = 2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * ffn
    layers = [held[f"forward model.layers.{place}"] for place in range(8)]
    grown = {after - before for before, after in pairwise(layers)}
    assert grown == {2 * 2048 * hidden * 4 + 2 * weights}


def test_a_replica_has_the_buckets_of_ddp_too() -> None:
    two = Parallelism(world_size=2, sharding=Sharding.REPLICATED)
    assert peak(answer(parallelism=two)) > peak(answer())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recompute": Recompute.SELECTIVE}, "autocast with selective recomputation"),
        ({"loss": Loss.FUSED_LINEAR}, "autocast with loss=FUSED_LINEAR"),
        ({"finetuning": Finetuning(rank=8)}, "autocast with frozen weights"),
    ],
)
def test_a_setting_that_was_not_measured_is_unknown(changes: Any, words: str) -> None:
    found = answer(made=training(**changes))
    assert found.verdict is EstimateVerdict.UNKNOWN
    assert words in found.reason


@pytest.mark.parametrize(
    ("parallelism", "words"),
    [
        (Parallelism(world_size=2, tp=2), "autocast with tp"),
        (Parallelism(world_size=2, sharding=Sharding.ZERO_2), "autocast with ZERO_2"),
    ],
)
def test_a_division_that_was_not_measured_is_unknown(parallelism: Parallelism, words: str) -> None:
    found = answer(parallelism=parallelism)
    assert found.verdict is EstimateVerdict.UNKNOWN
    assert words in found.reason


def test_other_kernels_and_other_families_are_unknown() -> None:
    assert "autocast under megatron-te" in answer(kernel_profile="megatron-te").reason
    experts = LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    assert "autocast over layers of mixtral" in answer(experts).reason


def test_eager_attention_needs_more() -> None:
    assert peak(answer(made=training(attention=Attention.EAGER))) > peak(answer())


def test_a_plan_says_that_it_does_not_plan_for_the_cache() -> None:
    request = PlanRequest(documents=documents(LLAMA), training=training())
    assert "autocast: not planned for yet" in unplanned(request, resolve(request.parallelism))
