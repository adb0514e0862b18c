"""Stages by hand: which blocks are where, what crosses, and which ranks are equal."""

from itertools import chain as joined

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haversack.errors import InvalidRequestError
from haversack.parallelism import Parallelism, PipelineSchedule, Sharding
from haversack.run import (
    Document,
    DocumentFormat,
    Recompute,
    RecomputeMethod,
    Training,
    TrainingRun,
)
from haversack_server.memory.choices import choose
from haversack_server.memory.model_run import ModelRun, model_run
from haversack_server.memory.stages import division

CONFIG = """{{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
"num_hidden_layers": {layers}, "num_attention_heads": 4, "num_key_value_heads": 2,
"vocab_size": 512, "tie_word_embeddings": {tied}}}"""
SHARDINGS = [Sharding.REPLICATED, Sharding.ZERO_1, Sharding.ZERO_3, Sharding.FSDP2]


def run_of(
    parallelism: Parallelism,
    training: Training | None = None,
    *,
    tied: bool = False,
    layers: int = 8,
) -> ModelRun:
    text = CONFIG.format(layers=layers, tied=str(tied).lower())
    document = Document(format=DocumentFormat.HF_CONFIG, text=text)
    training = training or Training(microbatch=1, seq=32, accumulation=8)
    return model_run(TrainingRun(documents=(document,), training=training, parallelism=parallelism))


def names(run: ModelRun) -> list[list[str]]:
    return [[block.name.split(".")[-1] for block in stage.blocks] for stage in run.stages]


def test_even_stages_have_the_embedding_first_and_the_head_last() -> None:
    assert names(run_of(Parallelism(pp=4))) == [
        ["embedding", "0", "1"],
        ["2", "3"],
        ["4", "5"],
        ["6", "7", "head"],
    ]


def test_what_happens_at_the_ends_is_said() -> None:
    said = run_of(Parallelism(pp=2), tied=True).assumptions
    assert "the tied weight is a replica on the first stage and on the last" in said
    assert any("return_outputs=False" in each for each in said)
    assert not any("replica" in each for each in run_of(Parallelism(), tied=True).assumptions)


def test_chunks_go_round_the_stages() -> None:
    run = run_of(Parallelism(pp=2, virtual_stages=2))
    assert names(run) == [["embedding", "0", "1", "4", "5"], ["2", "3", "6", "7", "head"]]
    assert [(each.start, each.stop) for each in run.stages[0].pipeline.chunks] == [(0, 3), (3, 5)]


def test_stages_may_be_stated_layer_by_layer() -> None:
    run = run_of(Parallelism(pp=4, stage_layers=(1, 3, 4, 0)))
    assert [len(stage.blocks) for stage in run.stages] == [2, 3, 4, 1]
    assert names(run)[3] == ["head"]


def test_what_does_not_divide_goes_to_the_first_stages_and_is_said() -> None:
    run = run_of(Parallelism(pp=3))
    assert [len(stage.blocks) for stage in run.stages] == [4, 3, 3]
    assert any(
        each.startswith("layers of stages: 3 on the first, 2 then") for each in run.assumptions
    )


@pytest.mark.parametrize(
    ("parallelism", "field"),
    [
        (Parallelism(pp=16), "parallelism.pp"),
        (Parallelism(pp=4, virtual_stages=4), "parallelism.virtual_stages"),
        (Parallelism(pp=2, stage_layers=(4, 3)), "parallelism.stage_layers"),
        (Parallelism(pp=2, stage_layers=(8,)), "parallelism.stage_layers"),
        (
            Parallelism(pp=2, pipeline_schedule=PipelineSchedule.INTERLEAVED),
            "parallelism.pipeline_schedule",
        ),
        (Parallelism(virtual_stages=2), "parallelism.virtual_stages"),
        (Parallelism(pp=2**20), "parallelism.pp"),
    ],
)
def test_stages_that_cannot_be_are_named(parallelism: Parallelism, field: str) -> None:
    units = run_of(Parallelism()).architecture.units
    with pytest.raises(InvalidRequestError) as wrong:
        division(parallelism, units)
    assert wrong.value.field == field


@given(
    tied=st.booleans(),
    layers=st.integers(4, 9),
    pp=st.integers(1, 4),
    tp=st.sampled_from([1, 2]),
)
def test_parameters_of_all_stages_are_the_models_and_the_stated_replica(
    tied: bool, layers: int, pp: int, tp: int
) -> None:
    """A tied weight stands on the first stage and on the last; norms stand on every tp rank."""
    run = run_of(Parallelism(pp=pp, tp=tp), tied=tied, layers=layers)
    whole = sum(unit.parameter_count_on(tp) for unit in run.architecture.units)
    replica = 512 // tp * 64 if tied and pp > 1 else 0
    found = sum(block.unit.whole for stage in run.stages for block in stage.blocks)
    assert found == whole + replica
    if tp == 1:
        assert found == run.architecture.parameter_count + replica


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_one_stage_is_the_whole_chain(sharding: Sharding) -> None:
    run = run_of(Parallelism(world_size=4, sharding=sharding))
    assert run.stages == (run.chain,)
    (only,) = run.rank_lines(Training(seq=32))
    assert (only.name, only.first_rank, only.rank_count) == ("every rank", 0, 4)


def test_ranks_are_numbered_with_the_pipeline_slowest() -> None:
    """Megatron-LM's order tp-cp-ep-dp-pp: stage p of P starts at p x world / P."""
    lines = run_of(Parallelism(world_size=32, tp=2, pp=4)).rank_lines(Training(seq=32))
    assert [line.first_rank for line in lines] == [0, 8, 16, 24]
    assert [line.rank_count for line in lines] == [8, 8, 8, 8]


def test_equal_stages_are_one_class_and_none_is_averaged() -> None:
    once = Training(microbatch=1, seq=32, accumulation=1)
    lines = run_of(Parallelism(world_size=8, pp=4), once).rank_lines(once)
    assert [line.name for line in lines] == ["stage 0", "stages 1 to 2", "stage 3"]
    assert [line.rank_count for line in lines] == [2, 4, 2]
    assert sum(line.rank_count for line in lines) == 8


def test_blocks_recompute_the_first_layers_of_every_chunk() -> None:
    training = Training(
        microbatch=1,
        seq=32,
        recompute=Recompute.FULL,
        recompute_method=RecomputeMethod.BLOCK,
        recompute_layers=1,
    )
    first, last = run_of(Parallelism(pp=2, virtual_stages=2), training).stages
    assert choose(first, training) == (0, 1, 0, 1, 0)  # embedding 0 1 | 4 5
    assert choose(last, training) == (1, 0, 1, 0, 0)  # 2 3 | 6 7 head


def test_units_of_stages_cover_the_chain_once() -> None:
    run = run_of(Parallelism(pp=2, virtual_stages=2))
    found = sorted(block.name for block in joined(*(stage.blocks for stage in run.stages)))
    assert found == sorted(block.name for block in run.chain.blocks)
