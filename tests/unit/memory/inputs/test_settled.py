"""Documents in a request: what they fill, what overrides them, where they contradict each other."""

import pytest
from tests.unit.memory.inputs.samples import model, sample, written

from haversack import EstimateRequest, PlanRequest
from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateVerdict, WhatIf
from haversack.parallelism import Parallelism, Sharding
from haversack.run import (
    BlockAction,
    Budget,
    Device,
    Document,
    DocumentFormat,
    Precision,
    Recompute,
    Training,
)
from haversack_server.estimate.answer import estimate
from haversack_server.memory.inputs.settled import settle
from haversack_server.plan.answer import plan

ZERO_2 = sample("zero2_defaults.json")
ZERO_3_AUTO = sample("zero3_offload_auto.json")
ON_DISK = written(
    DocumentFormat.DEEPSPEED,
    {
        "bf16": {"enabled": True},
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}},
    },
    name="disk.json",
)
ARGUMENTS = sample("hf_training_args.json")


def request(*documents: Document, **more: object) -> EstimateRequest:
    return EstimateRequest(documents=documents, **more)  # type: ignore[arg-type]


def test_a_file_fills_what_the_request_leaves_open() -> None:
    run = settle(request(model(), ZERO_2)).run
    assert run.training.microbatch == 1
    assert run.training.accumulation == 8
    assert run.training.precision is Precision.BF16_FP32_MASTER
    assert run.parallelism.sharding is Sharding.ZERO_2
    assert run.kernel_profile == "deepspeed"


def test_the_answer_lists_which_file_set_what() -> None:
    settled = settle(request(model(), ZERO_2))
    assert (
        "training.microbatch = 1: zero2_defaults.json (train_micro_batch_size_per_gpu)"
        in settled.settings
    )


def test_the_request_overrides_a_file_and_says_so() -> None:
    settled = settle(request(model(), ZERO_2, training=Training(microbatch=4)))
    assert settled.run.training.microbatch == 4
    assert (
        "training.microbatch = 4, as the request says; zero2_defaults.json "
        "(train_micro_batch_size_per_gpu) says 1" in settled.settings
    )


def test_actions_override_a_files_recomputation() -> None:
    actions = (BlockAction(block="head", option="save"),)
    settled = settle(request(model(), ARGUMENTS, training=Training(actions=actions)))
    assert settled.run.training.recompute is Recompute.UNSPECIFIED
    assert any("as its actions say" in each for each in settled.settings)


def test_two_files_that_contradict_each_other_are_both_named() -> None:
    other = written(DocumentFormat.HF_TRAINING_ARGUMENTS, {"per_device_train_batch_size": 2})
    with pytest.raises(InvalidRequestError) as caught:
        settle(request(model(), ZERO_2, other))
    (wrong,) = caught.value.violations
    assert wrong.field == "documents[2].text.per_device_train_batch_size"
    assert "file (per_device_train_batch_size) says 2" in wrong.description
    assert "zero2_defaults.json (train_micro_batch_size_per_gpu) says 1" in wrong.description


def test_a_contradiction_that_the_request_settles_is_none() -> None:
    other = written(DocumentFormat.HF_TRAINING_ARGUMENTS, {"per_device_train_batch_size": 2})
    settled = settle(request(model(), ZERO_2, other, training=Training(microbatch=4)))
    assert sum("as the request says" in each for each in settled.settings) == 2


def test_two_engines_contradict_each_other() -> None:
    with pytest.raises(InvalidRequestError, match="engine"):
        settle(request(model(), ZERO_2, sample("fsdp2_reshard.yaml")))


def test_auto_is_filled_in_from_the_model() -> None:
    settled = settle(request(model(), ZERO_3_AUTO))
    assert settled.run.parallelism.reduce_bucket_elements == 4096 * 4096
    assert settled.run.parallelism.persistent_elements == 40_960
    assert any("is auto: 16,777,216" in each for each in settled.assumptions)


def test_auto_without_a_model_is_named() -> None:
    settled = settle(EstimateRequest(documents=(ZERO_3_AUTO,), parameter_count=1000))
    assert settled.run.parallelism.reduce_bucket_elements is None
    assert any("no document has a hidden size" in each for each in settled.assumptions)


def test_files_stand_beside_another_subject() -> None:
    answer = estimate(
        EstimateRequest(
            documents=(ZERO_2,), parameter_count=10**9, parallelism=Parallelism(world_size=8)
        )
    )
    assert answer.steady_bytes == 2 * 10**9 + (2 + 12) * 10**9 // 8


def test_files_without_a_model_ask_for_one() -> None:
    with pytest.raises(InvalidRequestError, match="none of the documents describes the model"):
        estimate(request(ZERO_2, training=Training(seq=128)))


def test_two_models_are_too_many() -> None:
    with pytest.raises(InvalidRequestError, match="2 documents describe a model"):
        estimate(request(model(), sample("gpt_7b_tp2_pp1.args")))


def test_mixed_precision_depends_on_the_engine() -> None:
    arguments = written(DocumentFormat.HF_TRAINING_ARGUMENTS, {"bf16": True})
    under_deepspeed = settle(request(model(), arguments, ZERO_3_AUTO))
    assert under_deepspeed.run.training.precision is Precision.BF16_FP32_MASTER
    under_fsdp = settle(request(model(), arguments, sample("fsdp1_full_shard.yaml")))
    assert under_fsdp.run.training.precision is Precision.FP32_BF16_COMPUTE
    alone = settle(request(model(), arguments))
    assert alone.run.training.precision is Precision.FP32_BF16_COMPUTE
    assert any("fp32 parameters under autocast" in each for each in alone.assumptions)


@pytest.mark.parametrize(("mixed", "known"), [("bf16", True), ("fp16", True), ("fp8", False)])
def test_autocast_is_known_of_numbers_of_two_bytes(mixed: str, known: bool) -> None:
    text = f"distributed_type: MULTI_GPU\nmixed_precision: {mixed}\n"
    settled = settle(request(model(), written(DocumentFormat.ACCELERATE, text)))
    found = settled.run.training.precision
    assert (found is Precision.FP32_BF16_COMPUTE) is known


def test_a_global_batch_becomes_accumulation() -> None:
    arguments = sample("gpt_7b_tp2_pp1.args")
    settled = settle(request(arguments, parallelism=Parallelism(world_size=16)))
    assert settled.run.training.accumulation == 8  # 128 over 8 data ranks of 2
    assert any(each.startswith("training.accumulation = 8: 128 of") for each in settled.settings)


def test_a_global_batch_that_does_not_divide_is_refused() -> None:
    values = {
        "train_batch_size": 30,
        "train_micro_batch_size_per_gpu": 4,
        "bf16": {"enabled": True},
    }
    with pytest.raises(InvalidRequestError, match="not microbatch 4 x 8 data ranks"):
        settle(
            request(
                model(),
                written(DocumentFormat.DEEPSPEED, values | {"zero_optimization": {"stage": 1}}),
                parallelism=Parallelism(world_size=8),
            )
        )


def test_a_file_that_another_names_is_asked_for() -> None:
    factory = sample("llamafactory_sft.yaml")
    (said,) = settle(request(model(), factory)).unmodelled
    assert "names 'zero2_defaults.json', which is not among the documents" in said
    together = settle(request(model(), factory, ZERO_3_AUTO))
    assert not any("among the documents" in each for each in together.unmodelled)


def test_tokens_of_a_microbatch_become_sequences() -> None:
    titan = sample("llama3_8b_2026_saved.json")
    assert settle(request(model(), titan)).run.training.microbatch == 1
    shorter = settle(request(model(), titan, training=Training(seq=2048)))
    assert shorter.run.training.microbatch == 4
    with pytest.raises(InvalidRequestError, match="no whole sequences of 5000"):
        settle(request(model(), titan, training=Training(seq=5000)))


def test_a_setting_that_is_not_modelled_makes_the_verdict_unknown() -> None:
    answer = estimate(
        request(
            model(),
            ON_DISK,
            training=Training(seq=128),
            device=Device(memory_bytes=80 * 2**30),
        )
    )
    assert answer.verdict is EstimateVerdict.UNKNOWN
    assert "zero_optimization.offload_optimizer.device=nvme" in answer.not_modelled[0]
    assert answer.peak is None
    assert "disk.json: gradient_clipping: changes no memory" in answer.ignored_inputs


def test_a_plan_reads_files_too() -> None:
    asked = PlanRequest(
        documents=(model(), ZERO_2),
        training=Training(seq=512),
        parallelism=Parallelism(world_size=8),
        budget=Budget(bytes=70 * 2**30),
        frontier_points=0,
    )
    answer = plan(asked)
    assert answer.actions
    assert any(each.startswith("parallelism.sharding = ZERO_2") for each in answer.settings)
    unknown = plan(PlanRequest(documents=(model(), ON_DISK), training=Training(seq=512)))
    assert "states on a disk" in unknown.not_modelled[0]


@pytest.mark.parametrize(
    ("kind", "text", "key"),
    [
        (
            DocumentFormat.HF_TRAINING_ARGUMENTS,
            {"gradient_checkpointing": True},
            "gradient_checkpointing",
        ),
        (
            DocumentFormat.TORCHTITAN_JSON,
            {"activation_checkpoint": {"mode": "selective", "selective_ac_option": "2"}},
            "activation_checkpoint.selective_ac_option",
        ),
    ],
)
def test_a_plan_takes_the_place_of_what_a_file_recomputes(
    kind: DocumentFormat, text: dict[str, object], key: str
) -> None:
    asked = PlanRequest(
        documents=(model(), written(kind, text, name="mine")),
        training=Training(seq=512, microbatch=1),
        budget=Budget(bytes=400 * 2**30),
        frontier_points=0,
    )
    answer = plan(asked)
    assert {each.option for each in answer.actions} == {"save"}
    assert f"mine ({key}) gives way to the plan, which chooses what is recomputed" in (
        answer.assumptions
    )
    assert not any("recompute" in each for each in answer.settings)


def test_a_variation_changes_what_a_file_set() -> None:
    base = request(
        model(),
        ZERO_2,
        training=Training(seq=512),
        parallelism=Parallelism(world_size=8),
        what_ifs=(WhatIf(name="one", training=Training(microbatch=4)),),
    )
    (varied,) = estimate(base).what_ifs
    assert varied.delta_bytes is not None
    assert varied.delta_bytes > 0


def test_a_value_that_the_request_cannot_have_names_its_file() -> None:
    titan = written(
        DocumentFormat.TORCHTITAN_TOML,
        "[parallelism]\ntensor_parallel_degree = 3\n[training]\nseq_len = 512\n",
        name="titan.toml",
    )
    with pytest.raises(InvalidRequestError) as caught:
        settle(request(model(), titan, parallelism=Parallelism(world_size=8)))
    assert "parallelism.world_size" in caught.value.field


def test_every_second_layer_becomes_actions() -> None:
    text = '[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "2"\n'
    titan = written(DocumentFormat.TORCHTITAN_TOML, text)
    actions = settle(request(model(), titan)).run.training.actions
    assert len(actions) == 16
    assert actions[0] == BlockAction(block="model.layers.1", option="recompute")
    overridden = request(model(), titan, training=Training(recompute=Recompute.FULL))
    assert settle(overridden).run.training.actions == ()


def test_mixed_precision_without_a_shard_is_named() -> None:
    text = "[parallelism]\ndata_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1\n"
    settled = settle(request(model(), written(DocumentFormat.TORCHTITAN_TOML, text)))
    assert "autocast over fp32 weights" in settled.unmodelled[0]


def test_a_text_that_is_nothing_but_keys_makes_no_endless_answer() -> None:
    values = {f"k{place}": 1 for place in range(3000)} | {"x" * 5000: 1}
    junk = written(DocumentFormat.TORCHTITAN_JSON, values, name="a\nname " + "y" * 500)
    ignored = settle(request(model(), junk)).ignored
    assert len(ignored) == 1001
    assert ignored[-1].endswith("2001 more keys")
    assert all(len(each) < 300 and "\n" not in each for each in ignored)


def test_buckets_of_ddp_in_the_arguments_do_not_contradict_deepspeed() -> None:
    # Launchers write them whatever the engine is.
    arguments = {"ddp_find_unused_parameters": False, "ddp_bucket_cap_mb": 25, "bf16": True}
    given = written(DocumentFormat.HF_TRAINING_ARGUMENTS, arguments)
    assert settle(request(model(), given, ZERO_2)).run.parallelism.sharding is Sharding.ZERO_2
