"""accelerate's YAML: two versions of FSDP, two spellings of keys, DeepSpeed inside."""

from typing import Any

import pytest
from tests.unit.memory.inputs.samples import read, sample, settings, written

from haversack.errors import InvalidRequestError
from haversack.parallelism import BackwardPrefetch, Sharding, WrapPolicy
from haversack.run import DocumentFormat, Recompute, StateDict
from haversack_server.memory.inputs.reading import DEEPSPEED_FILE, ENGINE, MIXED_PRECISION

KIND = DocumentFormat.ACCELERATE
FSDP = {"distributed_type": "FSDP", "num_processes": 8, "mixed_precision": "bf16"}


def fsdp(**keys: Any) -> dict[str, Any]:
    return FSDP | {"fsdp_config": keys}


def refusal(values: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        read(written(KIND, values))
    return caught.value


def test_the_two_versions_of_fsdp_are_two_schedules() -> None:
    first, second = (
        settings(sample(f"{name}.yaml")) for name in ("fsdp1_full_shard", "fsdp2_reshard")
    )
    assert first["parallelism.sharding"] is Sharding.FSDP1
    assert second["parallelism.sharding"] is Sharding.FSDP2
    assert (first[ENGINE], second[ENGINE]) == ("fsdp1", "fsdp2")
    assert first["parallelism.backward_prefetch"] is BackwardPrefetch.PRE
    assert "parallelism.backward_prefetch" not in second


def test_a_full_file_leaves_nothing_ignored() -> None:
    for name in ("fsdp1_full_shard.yaml", "fsdp2_reshard.yaml", "deepspeed_zero3_inline.yaml"):
        reading = read(sample(name))
        assert reading.ignored == ()
        assert reading.unmodelled == ()
    assert "fsdp_config.fsdp_use_orig_params" in read(sample("fsdp1_full_shard.yaml")).silent


def test_what_a_file_says_of_a_run() -> None:
    found = settings(sample("fsdp2_reshard.yaml"))
    assert found["parallelism.world_size"] == 16
    assert found["parallelism.reshard_after_forward"] is True
    assert found["parallelism.wrap"] is WrapPolicy.LAYERS
    assert found["training.recompute"] is Recompute.FULL
    assert found["training.state_dict"] is StateDict.SHARDED
    assert found[MIXED_PRECISION] == "bf16"


@pytest.mark.parametrize("prefix", ["", "fsdp_"])
def test_keys_are_read_with_and_without_their_prefix(prefix: str) -> None:
    keys = {f"{prefix}version": 2, f"{prefix}reshard_after_forward": False}
    found = settings(written(KIND, fsdp(**keys)))
    assert found["parallelism.sharding"] is Sharding.FSDP2
    assert found["parallelism.reshard_after_forward"] is False


@pytest.mark.parametrize(
    ("strategy", "reshards"),
    [("FULL_SHARD", True), (1, True), ("SHARD_GRAD_OP", False), ("2", False)],
)
def test_a_strategy_is_a_name_or_a_number(strategy: Any, reshards: bool) -> None:
    found = settings(written(KIND, fsdp(fsdp_sharding_strategy=strategy)))
    assert found["parallelism.sharding"] is Sharding.FSDP1
    assert found["parallelism.reshard_after_forward"] is reshards


def test_a_strategy_under_the_newer_key_is_still_version_1() -> None:
    found = settings(written(KIND, fsdp(fsdp_reshard_after_forward="SHARD_GRAD_OP")))
    assert found["parallelism.sharding"] is Sharding.FSDP1
    assert found["parallelism.reshard_after_forward"] is False


def test_a_number_of_ranks_under_version_2() -> None:
    found = settings(written(KIND, fsdp(fsdp_version=2, fsdp_reshard_after_forward=4)))
    assert found["parallelism.reshard_ranks"] == 4


def test_a_hybrid_shards_inside_a_machine() -> None:
    values = fsdp(fsdp_sharding_strategy="HYBRID_SHARD") | {"num_machines": 2}
    found = settings(written(KIND, values))
    assert found["parallelism.dp_shard"] == 4
    assert found["parallelism.reshard_after_forward"] is True


@pytest.mark.parametrize(
    "keys",
    [
        {"fsdp_reshard_after_forward": True},
        {"fsdp_reshard_after_forward": True, "fsdp_sharding_strategy": "FULL_SHARD"},
        {"fsdp_version": 2, "fsdp_sharding_strategy": "FULL_SHARD"},
    ],
)
def test_a_file_that_could_be_either_version_is_refused(keys: dict[str, Any]) -> None:
    wrong = refusal(fsdp(**keys))
    assert "version" in str(wrong)
    assert wrong.field.startswith("documents[0].text.fsdp_config.fsdp_")


def test_neither_version_nor_strategy_is_accelerates_default_and_said() -> None:
    reading = read(written(KIND, fsdp(fsdp_offload_params=False)))
    assert any("FSDP version 1 and FULL_SHARD" in each for each in reading.assumptions)


def test_units_that_are_no_layers_are_named() -> None:
    reading = read(written(KIND, fsdp(fsdp_version=2, fsdp_auto_wrap_policy="SIZE_BASED_WRAP")))
    assert "units that are no layers" in reading.unmodelled[0]


def test_shards_may_live_on_the_host() -> None:
    found = settings(written(KIND, fsdp(fsdp_version=2, fsdp_offload_params=True)))
    assert found["parallelism.offload_parameters"] is True


def test_a_deepspeed_section_is_read_in_accelerates_spelling() -> None:
    found = settings(sample("deepspeed_zero3_inline.yaml"))
    assert found["parallelism.sharding"] is Sharding.ZERO_3
    assert found["training.accumulation"] == 4
    assert found[ENGINE] == "deepspeed"


def test_a_deepspeed_file_is_asked_for_by_name() -> None:
    values = {
        "distributed_type": "DEEPSPEED",
        "num_processes": 4,
        "deepspeed_config": {"deepspeed_config_file": "ds.json"},
    }
    assert settings(written(KIND, values))[DEEPSPEED_FILE] == "ds.json"


def test_ranks_are_the_same_on_every_machine() -> None:
    assert "not the same on 3 machines" in str(refusal(FSDP | {"num_machines": 3}))


def test_a_key_of_another_tool_is_listed() -> None:
    reading = read(written(KIND, FSDP | {"fsdp_config": {"fsdp_version": 2, "sharding": 1}}))
    assert reading.ignored == ("fsdp_config.sharding",)


def test_an_old_spelling_of_prefetch_is_read() -> None:
    values = fsdp(fsdp_sharding_strategy=1, fsdp_backward_prefetch_policy="BACKWARD_POST")
    found = settings(written(KIND, values))
    assert found["parallelism.backward_prefetch"] is BackwardPrefetch.POST


def test_an_unquoted_no_of_yaml_is_a_no() -> None:
    text = "distributed_type: NO\nmixed_precision: no\nnum_processes: 1\ndynamo_backend: NO\n"
    found = settings(written(KIND, text))
    assert found[MIXED_PRECISION] == "no"
    assert ENGINE not in found
    assert "kernel_profile" not in found


def test_a_compiled_model_has_the_kernels_of_the_compiler() -> None:
    values = {"dynamo_config": {"dynamo_backend": "INDUCTOR"}, "num_processes": 1}
    assert settings(written(KIND, values))["kernel_profile"] == "compile"
