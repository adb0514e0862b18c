"""DeepSpeed's JSON: stages, buckets, "auto", recipes, batch arithmetic; nothing dropped."""

from typing import Any

import pytest
from tests.unit.memory.inputs.samples import read, sample, settings, written

from haversack.errors import InvalidRequestError
from haversack.parallelism import Sharding
from haversack.run import DocumentFormat, Optimizer, OptimizerKernel, Precision
from haversack_server.memory.inputs.reading import GLOBAL_BATCH, MIXED_PRECISION, FromHidden

KIND = DocumentFormat.DEEPSPEED
BF16 = {"bf16": {"enabled": True}}


def of(values: Any) -> dict[str, Any]:
    return settings(written(KIND, values))


def refusal(values: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        read(written(KIND, values))
    return caught.value


def test_a_figure_written_as_a_float_is_the_whole_number_that_it_says() -> None:
    found = settings(sample("zero2_defaults.json"))
    assert found["parallelism.reduce_bucket_elements"] == 500_000_000
    assert type(found["parallelism.reduce_bucket_elements"]) is int


@pytest.mark.parametrize(
    ("stage", "sharding"),
    [
        (0, Sharding.REPLICATED),
        (1, Sharding.ZERO_1),
        ("2", Sharding.ZERO_2),
        (3, Sharding.ZERO_3),
    ],
)
def test_the_stage_says_what_is_sharded(stage: Any, sharding: Sharding) -> None:
    assert of(BF16 | {"zero_optimization": {"stage": stage}})["parallelism.sharding"] is sharding


def test_without_its_section_nothing_is_sharded_and_the_answer_says_so() -> None:
    reading = read(written(KIND, BF16))
    assert [each.value for each in reading.settings if "sharding" in each.field] == [
        Sharding.REPLICATED
    ]
    assert "nothing is sharded" in reading.assumptions[0]


def test_auto_is_left_to_the_model_or_named() -> None:
    reading = read(sample("zero3_offload_auto.json"))
    found = {each.field: each.value for each in reading.settings}
    bucket = found["parallelism.reduce_bucket_elements"]
    assert isinstance(bucket, FromHidden)
    assert bucket.value(4096) == 4096 * 4096
    assert found["parallelism.persistent_elements"].value(4096) == 40_960
    assert found["parallelism.prefetch_elements"].value(4096) == int(0.9 * 4096 * 4096)
    assert "training.microbatch" not in found
    assert any("train_micro_batch_size_per_gpu is auto" in each for each in reading.assumptions)


def test_what_is_offloaded_lives_on_the_host_or_on_a_disk_that_is_not_modelled() -> None:
    found = settings(sample("zero3_offload_auto.json"))
    assert found["parallelism.offload_optimizer"] is True
    assert found["parallelism.offload_parameters"] is True
    assert of(BF16 | {"zero_optimization": {"stage": 2, "cpu_offload": True}})[
        "parallelism.offload_optimizer"
    ]
    disk = BF16 | {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}}
    (said,) = read(written(KIND, disk)).unmodelled
    assert "zero_optimization.offload_param.device=nvme" in said


def test_pins_are_read_and_a_part_of_the_states_on_the_host_is_not_modelled() -> None:
    def moved(**given: Any) -> dict[str, Any]:
        section = {"stage": 3, "offload_optimizer": {"device": "cpu"} | given}
        return BF16 | {"zero_optimization": section}

    assert of(moved(pin_memory=True))["parallelism.pin_memory"] is True
    assert "parallelism.pin_memory" not in of(moved(pin_memory=False))
    (said,) = read(written(KIND, moved(ratio=0.3))).unmodelled
    assert "zero_optimization.offload_optimizer.ratio=0.3" in said
    assert not read(written(KIND, moved(ratio=1.0))).unmodelled


def test_an_offload_to_none_is_none() -> None:
    values = BF16 | {"zero_optimization": {"stage": 3, "offload_param": {"device": "none"}}}
    assert read(written(KIND, values)).unmodelled == ()
    assert "parallelism.offload_parameters" not in of(values)


def test_a_misspelled_key_is_listed_with_its_path() -> None:
    values = BF16 | {"zero_optimization": {"stage": 2, "reduce_bucket_sise": 5e8}}
    assert read(written(KIND, values)).ignored == ("zero_optimization.reduce_bucket_sise",)


def test_a_key_that_changes_no_byte_is_listed_apart() -> None:
    reading = read(sample("zero2_defaults.json"))
    assert reading.ignored == ()
    assert "gradient_clipping" in reading.silent
    assert "optimizer.params.lr" in reading.silent


def test_both_spellings_of_bf16_are_one_key() -> None:
    assert of({"bfloat16": {"enabled": True}})[MIXED_PRECISION] == "bf16"
    wrong = refusal({"bf16": {"enabled": True}, "bfloat16": {"enabled": False}})
    assert "but bf16.enabled is True" in str(wrong)


def test_two_half_precisions_are_refused() -> None:
    wrong = refusal({"fp16": {"enabled": True}, "bf16": {"enabled": True}})
    assert wrong.field == "documents[0].text.bf16.enabled"


def test_neither_half_precision_is_fp32() -> None:
    assert of({"zero_optimization": {"stage": 1}})[MIXED_PRECISION] == "no"


def test_gradients_added_up_in_fp32_are_a_recipe_of_their_own() -> None:
    found = of(BF16 | {"data_types": {"grad_accum_dtype": "fp32"}})
    assert found["training.precision"] is Precision.BF16_FP32_GRADIENT


def test_the_batch_has_three_figures() -> None:
    found = of(BF16 | {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2})
    assert found[GLOBAL_BATCH] == 64
    assert found["training.microbatch"] == 2


def test_deepspeeds_adam_is_fused_and_torchs_is_not() -> None:
    found = of(BF16 | {"optimizer": {"type": "AdamW", "params": {"torch_adam": True}}})
    assert found["training.optimizer"] is Optimizer.ADAMW
    assert found["training.optimizer_kernel"] is OptimizerKernel.FOREACH
    fused = of(BF16 | {"optimizer": {"type": "Adam"}})
    assert "training.optimizer_kernel" not in fused


def test_an_optimizer_that_is_not_known_is_named() -> None:
    reading = read(written(KIND, BF16 | {"optimizer": {"type": "OneBitAdam"}}))
    assert "optimizer.type=OneBitAdam" in reading.unmodelled[0]


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"train_micro_batch_size_per_gpu": 1.5}, "train_micro_batch_size_per_gpu"),
        ({"train_micro_batch_size_per_gpu": -1}, "train_micro_batch_size_per_gpu"),
        ({"train_micro_batch_size_per_gpu": True}, "train_micro_batch_size_per_gpu"),
        ({"zero_optimization": {"stage": 4}}, "zero_optimization.stage"),
        ({"zero_optimization": True}, "zero_optimization"),
        ({"zero_optimization": {"overlap_comm": 3}}, "zero_optimization.overlap_comm"),
        ({"zero_optimization": {"reduce_bucket_size": 1e400}}, ""),
    ],
)
def test_a_value_that_cannot_be_is_refused_at_its_key(values: Any, path: str) -> None:
    text = '{"zero_optimization": {"reduce_bucket_size": 1e400}}' if not path else values
    wrong = refusal(text)
    assert wrong.field == ("documents[0].text" + (f".{path}" if path else ""))
    assert "give" in str(wrong) or "use one of" in str(wrong)
