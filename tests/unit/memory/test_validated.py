"""Settings that no measured run has: named, and never with ends nearer than the profile's own."""

import json
from dataclasses import replace

import pytest

from haversack.estimate import Estimate, EstimateRequest
from haversack.finetuning import Finetuning, StoredWeights
from haversack.parallelism import Parallelism, Sharding
from haversack.plan import PlanRequest
from haversack.questions import EstimateQuestion
from haversack.run import (
    Budget,
    Document,
    DocumentFormat,
    Optimizer,
    Precision,
    Recompute,
    Training,
)
from haversack_server.estimate.answer import estimate
from haversack_server.memory import kernel_profile, validated
from haversack_server.plan.answer import plan

LLAMA = Document(
    format=DocumentFormat.HF_CONFIG,
    text=json.dumps(
        {
            "model_type": "llama",
            "hidden_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "intermediate_size": 512,
            "vocab_size": 1000,
        }
    ),
)
COVERED = Training(microbatch=1, seq=512, precision=Precision.BF16)


def asked(
    training: Training, parallelism: Parallelism = Parallelism(), profile: str = ""
) -> Estimate:
    request = EstimateRequest(
        documents=(LLAMA,),
        training=training,
        parallelism=parallelism,
        kernel_profile=profile,
        questions=(EstimateQuestion.BRIEF,),
    )
    return estimate(request)


def high_permille(answer: Estimate) -> int:
    assert answer.peak is not None
    allocated = answer.peak.allocated
    return round(1000 * allocated.high_bytes / allocated.expected_bytes)


def test_a_run_of_settings_that_were_measured_names_none_and_has_its_own_ends() -> None:
    answer = asked(COVERED)
    assert answer.not_validated == ()
    assert high_permille(answer) == 1040


@pytest.mark.parametrize(
    ("training", "parallelism", "named"),
    [
        (replace(COVERED, optimizer=Optimizer.LION), Parallelism(), "optimizer lion under"),
        (
            replace(COVERED, precision=Precision.BF16_FP32_MASTER),
            Parallelism(),
            "precision bf16_fp32_master",
        ),
        (
            replace(COVERED, recompute=Recompute.SELECTIVE),
            Parallelism(),
            "recompute selective under hf-eager (measured: full, none)",
        ),
        (
            COVERED,
            Parallelism(world_size=2, sharding=Sharding.FSDP2),
            "ranks several under hf-eager (measured: one)",
        ),
        (COVERED, Parallelism(tp=2), "axes tp under hf-eager (measured: none)"),
        (
            replace(
                COVERED, finetuning=Finetuning(rank=16, frozen_weights=StoredWeights.NF4_DOUBLE)
            ),
            Parallelism(),
            "trained weights only some (the others frozen, stored as nf4_double) under hf-eager",
        ),
    ],
)
def test_a_setting_that_was_not_measured_is_named_and_widens_the_ends(
    training: Training, parallelism: Parallelism, named: str
) -> None:
    answer = asked(training, parallelism)
    assert any(each.startswith(named) for each in answer.not_validated)
    assert high_permille(answer) >= 1110


def test_a_profile_without_measured_runs_says_so() -> None:
    (named,) = asked(COVERED, profile="deepspeed").not_validated
    assert named == "kernel profile deepspeed: there are no measured runs under it"


def test_a_plan_names_them_and_its_actions_are_judged_by_the_same_ends() -> None:
    training = replace(COVERED, optimizer=Optimizer.LION)
    request = PlanRequest(documents=(LLAMA,), training=training, budget=Budget(bytes=2**40))
    found = plan(request)
    assert any(each.startswith("not validated: optimizer lion") for each in found.assumptions)
    acted = asked(replace(training, actions=found.actions))
    assert high_permille(acted) == high_permille(asked(training))
    assert acted.not_validated == asked(training).not_validated


def test_every_profile_of_the_list_is_known_and_has_the_settings_of_all_others() -> None:
    listed = validated.validated()
    assert listed.keys() < set(kernel_profile.names())
    assert len({tuple(settings) for settings in listed.values()}) == 1
