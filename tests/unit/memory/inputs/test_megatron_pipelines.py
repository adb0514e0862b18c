"""Megatron-LM's arguments: stages and chunks, layers that predict further tokens, and more."""

import json
from typing import Any

import pytest
from tests.unit.memory.inputs.samples import read, settings, written
from tests.unit.memory.inputs.test_megatron import SMALL, architecture, of, refusal

from haversack.estimate import Estimate, EstimateRequest
from haversack.parallelism import Parallelism, PipelineSchedule
from haversack.run import Document, DocumentFormat
from haversack_server.estimate.answer import estimate
from haversack_server.memory.prediction import MORE_AT_THE_LOSS

KIND = DocumentFormat.MEGATRON_ARGUMENTS
PREDICTING = SMALL | {"mtp-num-layers": 1, "untie-embeddings-and-output-weights": True}
TABLE = 50_304 * 512  # padded vocabulary and hidden size
LAYER = 12 * 512**2 + 13 * 512  # products with biases, two norms
PREDICTOR = LAYER + 2 * 512**2 + 3 * 2 * 512


def asked(values: dict[str, Any], ranks: int = 1) -> Estimate:
    text = json.dumps(values | {"global-batch-size": 8})
    document = Document(format=KIND, text=text)
    return estimate(
        EstimateRequest(documents=(document,), parallelism=Parallelism(world_size=ranks))
    )


def test_a_layer_that_predicts_has_norms_and_a_projection_beside_it() -> None:
    plain, made = architecture(SMALL), architecture(SMALL | {"mtp-num-layers": 2})
    layer = plain.units[1].parameter_count
    norms, projection = 3 * 2 * 512, 2 * 512 * 512
    assert made.parameter_count - plain.parameter_count == 2 * (layer + norms + projection)
    assert made.units[-1].parameters[-1].name.startswith("mtp.layers.1.")


def test_the_last_stage_has_a_replica_of_the_table_that_it_looks_tokens_up_in() -> None:
    one, two = (asked(PREDICTING | {"pipeline-model-parallel-size": n}, n) for n in (1, 2))
    assert any("replica of the table" in each for each in two.assumptions)
    assert not any("replica of the table" in each for each in one.assumptions)
    elements = two.ranks[-1].steady_bytes // 18
    layers, head = 6 * LAYER + PREDICTOR, TABLE + 2 * 512
    assert elements == layers + head + TABLE
    assert MORE_AT_THE_LOSS in one.assumptions
    assert MORE_AT_THE_LOSS not in asked(SMALL).assumptions


def test_predictors_stand_with_the_loss_in_a_layout() -> None:
    values = PREDICTING | {"pipeline-model-parallel-size": 2}
    layout = "pipeline-model-parallel-layout"
    found = settings(written(KIND, values | {layout: r"Et*3\|\(tt\|\)*4tmL"}))
    assert found["parallelism.stage_layers"] == (3, 2, 2, 2, 2, 1)
    apart = read(written(KIND, values | {layout: "Et*6m|t*6L"})).unmodelled
    assert any("a prediction inside the pipeline" in each for each in apart)
    wrong = refusal(values | {layout: "Et*6|t*6L"})
    assert "has 0 layers m that predict further tokens, but mtp-num-layers is 1" in str(wrong)
    assert "mtp-num-layers is 0" in str(
        refusal(values | {layout: "Et*6|t*6mL", "mtp-num-layers": None})
    )


def test_an_encoder_that_predicts_further_tokens_is_named() -> None:
    line = "pretrain_bert.py " + " ".join(f"--{key} {value}" for key, value in PREDICTING.items())
    found = read(written(KIND, line.replace(" True", "")))
    assert any("predicted by an encoder" in each for each in found.unmodelled)


def test_an_embedding_and_a_loss_count_as_layers_of_chunks() -> None:
    ends = {f"account-for-{side}-in-pipeline-split": True for side in ("embedding", "loss")}
    values = SMALL | ends | {"num-layers": 6, "pipeline-model-parallel-size": 4}
    chunks = {"num-virtual-stages-per-pipeline-rank": 2}
    found = settings(written(KIND, values | chunks))
    assert found["parallelism.stage_layers"] == (0, 1, 1, 1, 1, 1, 1, 0)
    assert "makes 9 of 7 layers" in str(refusal(values | chunks | {"num-layers": 7}))


def test_uneven_ends_are_divided_into_chunks() -> None:
    values = SMALL | {
        "pipeline-model-parallel-size": 2,
        "num-virtual-stages-per-pipeline-rank": 2,
        "decoder-first-pipeline-num-layers": 4,
    }
    found = settings(written(KIND, values))
    assert found["parallelism.stage_layers"] == (2, 4, 2, 4)
    wrong = refusal(values | {"decoder-first-pipeline-num-layers": 5})
    assert "2 chunks do not divide" in str(wrong)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("microbatch-group-size-per-virtual-pipeline-stage", 5, "groups of microbatches"),
        ("no-masked-softmax-fusion", True, "softmax as kernels of their own"),
        ("export-kd-teacher-load", "/teacher", "a teacher model"),
        ("defer-embedding-wgrad-compute", True, "the embedding's late gradient"),
        ("mtp-use-repeated-layer", True, "one layer that predicts"),
    ],
)
def test_an_option_that_decides_is_named(key: str, value: object, named: str) -> None:
    values = PREDICTING | {"pipeline-model-parallel-size": 4, key: value}
    assert any(named in each for each in read(written(KIND, values)).unmodelled)


def test_experts_in_one_product_have_workspaces_of_their_own() -> None:
    experts = SMALL | {"num-experts": 4, "moe-router-topk": 2}
    one, grouped = asked(experts), asked(experts | {"moe-grouped-gemm": True})
    more = grouped.ranks[0].between_steps_bytes - one.ranks[0].between_steps_bytes
    assert more == 4 * 32 * 2**20  # four streams, 32 MiB each on the newest devices


def test_a_run_that_states_no_chunks_is_told_so() -> None:
    staged = SMALL | {"pipeline-model-parallel-size": 4}
    said = [
        any("no virtual stages are stated" in each for each in asked(staged | more, 4).assumptions)
        for more in ({}, {"num-virtual-stages-per-pipeline-rank": 1})
    ]
    assert said == [True, False]
    assert not any("virtual stages" in each for each in asked(SMALL).assumptions)


def test_megatrons_own_fsdp_says_whose_buffers_are_taken() -> None:
    own = {"use-megatron-fsdp": True, "data-parallel-sharding-strategy": "optim_grads_params"}
    assert any("those of FSDP2 are taken" in each for each in asked(SMALL | own, 2).assumptions)


def test_an_interleaved_pipeline_has_chunks() -> None:
    found = of(pipeline_model_parallel_size=2, num_layers_per_virtual_pipeline_stage=2)
    assert found["parallelism.virtual_stages"] == 3
    assert found["parallelism.pipeline_schedule"] is PipelineSchedule.INTERLEAVED


def test_one_chunk_is_no_interleaving() -> None:
    found = of(pipeline_model_parallel_size=4, num_layers_per_virtual_pipeline_stage=3)
    assert found["parallelism.virtual_stages"] == 1
    assert "parallelism.pipeline_schedule" not in found


def test_uneven_stages_are_written_out() -> None:
    found = of(pipeline_model_parallel_size=4, decoder_first_pipeline_num_layers=6)
    assert found["parallelism.stage_layers"] == (6, 2, 2, 2)
    balanced = of(
        num_layers=10,
        pipeline_model_parallel_size=4,
        account_for_embedding_in_pipeline_split=True,
        account_for_loss_in_pipeline_split=True,
    )
    assert balanced["parallelism.stage_layers"] == (2, 3, 3, 2)


@pytest.mark.parametrize(
    ("layout", "stages", "layers"),
    [
        ("Et|tt|tt|tttL", 4, (1, 2, 2, 3)),  # NVIDIA-NeMo/Megatron-Bridge#5077
        ("Et|(tt|)*2tttL", 4, (1, 2, 2, 3)),
        ("E,t*4|t*4,L", 2, (4, 4)),
        ([["embedding", "decoder"], ["decoder", "decoder", "loss"]], 2, (1, 2)),
    ],
)
def test_a_layout_names_the_layers_of_every_stage(
    layout: Any, stages: int, layers: tuple[int, ...]
) -> None:
    found = of(
        num_layers=sum(layers),
        pipeline_model_parallel_size=stages,
        pipeline_model_parallel_layout=layout,
    )
    assert found["parallelism.stage_layers"] == layers


def test_more_stages_than_ranks_are_chunks() -> None:
    found = of(
        num_layers=8,
        pipeline_model_parallel_size=2,
        pipeline_model_parallel_layout="Ett|tt|tt|ttL",
    )
    assert found["parallelism.virtual_stages"] == 2
    assert found["parallelism.stage_layers"] == (2, 2, 2, 2)


@pytest.mark.parametrize(
    "layout", ["Ett|ttL", "Ex|tL", "(t|)*9999", "E" + "t*9999" * 9, [["a"]], 3]
)
def test_a_layout_that_is_none_is_refused(layout: Any) -> None:
    values = SMALL | {
        "num-layers": 8,
        "pipeline-model-parallel-size": 2,
        "pipeline-model-parallel-layout": layout,
    }
    assert refusal(values).field == "documents[0].text.pipeline-model-parallel-layout"


def test_a_loss_inside_the_pipeline_is_named() -> None:
    values = SMALL | {
        "num-layers": 4,
        "pipeline-model-parallel-size": 2,
        "pipeline-model-parallel-layout": "EttL|tt",
    }
    assert "inside the pipeline" in read(written(KIND, values)).unmodelled[0]
