"""Model states by the ZeRO paper: stages 1 to 3, and the answer that says they are no peak."""

import json
from pathlib import Path

import pytest

from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateRequest, EstimateVerdict, ReasonCode
from haversack.parallelism import Parallelism, Sharding
from haversack.run import Device, Optimizer, Precision, StateBytes, Training
from haversack.units import GIB
from haversack_server.estimate.answer import estimate

STAGES = {1: Sharding.ZERO_1, 2: Sharding.ZERO_2, 3: Sharding.ZERO_3}
GOLDEN = Path(__file__).parents[2] / "golden" / "zero_table.json"


def over(ranks: int, stage: int) -> Parallelism:
    return Parallelism(world_size=ranks, sharding=STAGES[stage])


@pytest.mark.parametrize(("stage", "expected_gib"), [(1, 10), (2, 7), (3, 4)])
def test_named_states_are_divided_as_the_stage_says(stage: int, expected_gib: int) -> None:
    states = StateBytes(parameter_bytes=4 * GIB, gradient_bytes=4 * GIB, optimizer_bytes=8 * GIB)
    answer = estimate(EstimateRequest(state_bytes=states, parallelism=over(4, stage)))
    assert answer.steady_bytes == expected_gib * GIB
    assert answer.peak is None
    assert "steady part, not a peak" in answer.not_modelled[0]
    assert answer.verdict is EstimateVerdict.UNSPECIFIED


@pytest.mark.parametrize("row", json.loads(GOLDEN.read_text())["rows"], ids=str)
def test_the_zero_paper_s_table_within_its_last_digit(row: dict[str, int]) -> None:
    answer = estimate(
        EstimateRequest(
            parameter_count=row["parameters"], parallelism=over(row["ranks"], row["stage"])
        )
    )
    assert abs(answer.steady_bytes - row["printed_bytes"]) <= row["last_digit_bytes"]


def test_states_above_the_device_do_not_fit_and_states_below_it_prove_nothing() -> None:
    states = StateBytes(parameter_bytes=4 * GIB, gradient_bytes=4 * GIB, optimizer_bytes=8 * GIB)
    small = estimate(EstimateRequest(state_bytes=states, device=Device(memory_bytes=15 * GIB)))
    large = estimate(EstimateRequest(state_bytes=states, device=Device(memory_bytes=80 * GIB)))
    assert small.verdict is EstimateVerdict.DOES_NOT_FIT
    assert small.reason_code is ReasonCode.STATES_ABOVE_LIMIT
    assert large.verdict is EstimateVerdict.UNKNOWN
    assert large.reason_code is ReasonCode.ONLY_STATES_KNOWN


def test_terms_sum_to_the_steady_bytes_and_say_what_shards_them() -> None:
    answer = estimate(EstimateRequest(parameter_count=1_000, parallelism=over(8, 2)))
    assert sum(term.bytes for term in answer.terms) == answer.steady_bytes
    sharded = {term.name: term.sharded_over for term in answer.terms}
    assert sharded["parameters"] == ()
    assert sharded["gradients"] == ("dp_shard=8",)


@pytest.mark.parametrize(
    ("precision", "optimizer", "bytes_per_parameter"),
    [
        (Precision.BF16_FP32_MASTER, Optimizer.ADAMW, 16),
        (Precision.BF16_FP32_MASTER, Optimizer.SGD, 8),
        (Precision.FP32, Optimizer.ADAMW, 16),
        (Precision.FP32, Optimizer.SGD_MOMENTUM, 12),
        (Precision.BF16, Optimizer.ADAMW, 8),
    ],
)
def test_the_recipe_of_numbers_decides_bytes_per_parameter(
    precision: Precision, optimizer: Optimizer, bytes_per_parameter: int
) -> None:
    training = Training(precision=precision, optimizer=optimizer)
    answer = estimate(EstimateRequest(parameter_count=1_000, training=training))
    assert answer.steady_bytes == 1_000 * bytes_per_parameter


def test_a_pipeline_is_unknown_and_gets_no_figures() -> None:
    answer = estimate(
        EstimateRequest(
            parameter_count=10**9,
            parallelism=Parallelism(world_size=8, pp=2),
            device=Device(memory_bytes=80 * GIB),
        )
    )
    assert answer.verdict is EstimateVerdict.UNKNOWN
    assert answer.reason_code is ReasonCode.SETTING_NOT_MODELLED
    assert answer.terms == ()
    assert "pp=2" in answer.not_modelled[0]


def test_settings_that_a_subject_does_not_use_are_named() -> None:
    answer = estimate(
        EstimateRequest(
            parameter_count=1_000,
            training=Training(seq=128, optimizer=Optimizer.SGD),
            kernel_profile="hf-eager",
        )
    )
    assert [each.split(":")[0] for each in answer.ignored_inputs] == [
        "training.seq",
        "kernel_profile",
    ]


def test_an_unknown_kernel_profile_is_refused_for_every_subject() -> None:
    with pytest.raises(InvalidRequestError, match="hf-eager"):
        estimate(EstimateRequest(parameter_count=1, kernel_profile="none-such"))


def test_context_parallel_ranks_shard_with_the_data_ranks() -> None:
    """They hold the same weights: dp_shard 2 x cp 4 shards as dp_shard 8 does."""
    eight, both = (
        estimate(EstimateRequest(parameter_count=8_000, parallelism=parallelism))
        for parallelism in (
            Parallelism(world_size=8, sharding=Sharding.ZERO_3),
            Parallelism(world_size=8, cp=4, sharding=Sharding.ZERO_3),
        )
    )
    assert both.steady_bytes == eight.steady_bytes == 1_000 * 16
    assert any("dp_shard=2 x cp=4" in term.sharded_over for term in both.terms)


def test_what_is_not_modelled_is_unknown_without_a_limit_too() -> None:
    pipeline = Parallelism(world_size=8, pp=2)
    answer = estimate(EstimateRequest(parameter_count=10**9, parallelism=pipeline))
    assert answer.verdict is EstimateVerdict.UNKNOWN
    assert answer.steady_bytes == 0
