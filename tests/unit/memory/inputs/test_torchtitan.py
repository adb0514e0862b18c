"""torchtitan: the TOML era and the saved JSON, sections that moved, tokens for sequences."""

from typing import Any

import pytest
from tests.unit.memory.inputs.samples import read, sample, settings, written

from haversack.errors import InvalidRequestError
from haversack.parallelism import PipelineSchedule, Sharding
from haversack.run import DocumentFormat, Optimizer, Precision, Recompute
from haversack_server.memory.inputs.reading import TOKENS_PER_MICROBATCH

TOML, JSON = DocumentFormat.TORCHTITAN_TOML, DocumentFormat.TORCHTITAN_JSON


def toml(text: str) -> dict[str, Any]:
    return settings(written(TOML, text))


def test_a_toml_file() -> None:
    found = settings(sample("llama3_8b_2025.toml"))
    assert found["training.microbatch"] == 1
    assert found["training.seq"] == 8192
    assert found["parallelism.sharding"] is Sharding.FSDP2
    assert "parallelism.dp_shard" not in found  # -1 takes what is left
    assert found["training.optimizer"] is Optimizer.ADAMW
    assert found["training.precision"] is Precision.FP32_BF16_COMPUTE
    assert found["kernel_profile"] == "torchtitan-eager"


def test_a_saved_json_file() -> None:
    found = settings(sample("llama3_8b_2026_saved.json"))
    assert found[TOKENS_PER_MICROBATCH] == 8192
    assert found["training.seq"] == 8192
    assert found["kernel_profile"] == "compile"


def test_degrees_are_found_where_they_once_stood() -> None:
    found = toml(
        "[training]\nbatch_size = 2\ntensor_parallel_degree = 4\ndata_parallel_degree = 8\n"
        "[experimental]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = '1F1B'\n"
    )
    assert found["training.microbatch"] == 2
    assert found["parallelism.tp"] == 4
    assert found["parallelism.pp"] == 2
    assert found["parallelism.dp_shard"] == 8
    assert found["parallelism.pipeline_schedule"] is PipelineSchedule.ONE_F_ONE_B


def test_replicas_alone_are_ddp() -> None:
    found = toml(
        "[parallelism]\ndata_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1\n"
    )
    assert found["parallelism.sharding"] is Sharding.REPLICATED


@pytest.mark.parametrize(
    ("wanted", "stages", "frees"),
    [("default", 1, True), ("default", 2, False), ("always", 2, True), ("never", 1, False)],
)
def test_resharding_by_default_depends_on_the_pipeline(
    wanted: str, stages: int, frees: bool
) -> None:
    found = toml(
        f'[parallelism]\nfsdp_reshard_after_forward = "{wanted}"\n'
        f"pipeline_parallel_degree = {stages}\n"
    )
    assert found["parallelism.reshard_after_forward"] is frees


def test_recomputation_by_operation_is_torchtitans_policy() -> None:
    found = settings(sample("llama3_8b_2025.toml"))
    assert found["training.recompute"] is Recompute.SELECTIVE
    assert read(sample("llama3_8b_2025.toml")).unmodelled == ()
    other = '[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "mine"\n'
    assert "this selective policy" in read(written(TOML, other)).unmodelled[0]


def test_recomputation_by_budget_is_named() -> None:
    said = read(sample("llama3_8b_2026_saved.json")).unmodelled[0]
    assert "activation_checkpoint.type=MemoryBudgetAC: the compiler's own budget of 0.5" in said


@pytest.mark.parametrize(
    ("mode", "recompute"), [("none", Recompute.NONE), ("full", Recompute.FULL)]
)
def test_whole_layers_are_recomputed_or_none(mode: str, recompute: Recompute) -> None:
    found = toml(f'[activation_checkpoint]\nmode = "{mode}"\n')
    assert found["training.recompute"] is recompute


def test_tensor_parallelism_splits_the_sequence_too() -> None:
    found = toml("[parallelism]\ntensor_parallel_degree = 2\ndisable_loss_parallel = true\n")
    assert found["parallelism.sequence_parallel"] is True
    assert found["training.loss_parallel"] is False


def test_a_key_that_nobody_knows_is_listed_with_its_section() -> None:
    reading = read(written(TOML, "[training]\nseq_length = 4096\n[job]\ndump_folder = 'x'\n"))
    assert reading.ignored == ("training.seq_length",)
    assert reading.silent == ("job.dump_folder",)


def test_a_text_that_is_no_toml_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="not TOML"):
        read(written(TOML, "[training\nseq_len = 1"))


def test_shards_on_the_host_and_early_steps() -> None:
    found = toml(
        "[training]\nenable_cpu_offload = true\n[optimizer]\nearly_step_in_backward = true\n"
    )
    assert found["parallelism.offload_parameters"] is True
    assert found["training.optimizer_in_backward"] is True
