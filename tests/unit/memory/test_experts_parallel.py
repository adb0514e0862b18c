"""Experts over ranks by hand: which weights, which rows, and what the worst routing brings."""

from typing import Any

import pytest

from haversack.errors import InvalidRequestError
from haversack.parallelism import Parallelism, Sharding
from haversack.run import Document, DocumentFormat, Training, TrainingRun
from haversack_server.memory.experts_parallel import dispatch, worst_load_permille
from haversack_server.memory.model_run import ModelRun, model_run

SEQ, HIDDEN, FFN, EXPERTS, CHOSEN, LAYERS = 64, 32, 48, 8, 2, 2
MIXTRAL = Document(
    format=DocumentFormat.HF_CONFIG,
    text=f"""{{"model_type": "mixtral", "hidden_size": {HIDDEN}, "intermediate_size": {FFN},
    "num_hidden_layers": {LAYERS}, "num_attention_heads": 4, "num_key_value_heads": 4,
    "vocab_size": 64, "num_local_experts": {EXPERTS}, "num_experts_per_tok": {CHOSEN},
    "tie_word_embeddings": false}}""",
)
EXPERT = 3 * HIDDEN * FFN  # gate, up and down


def run_of(**axes: Any) -> ModelRun:
    return model_run(
        TrainingRun(
            documents=(MIXTRAL,),
            training=Training(microbatch=1, seq=SEQ),
            parallelism=Parallelism(**axes),
        )
    )


def layer_elements(**axes: Any) -> int:
    return run_of(**axes).chain.blocks[1].unit.whole


def test_a_rank_has_its_share_of_the_experts_and_all_of_the_rest() -> None:
    rest = layer_elements() - EXPERTS * EXPERT
    assert layer_elements(world_size=4, ep=4) == rest + EXPERTS // 4 * EXPERT
    assert layer_elements(world_size=8, ep=8) == rest + EXPERT


def test_experts_may_be_split_less_than_the_rest() -> None:
    axes = {"world_size": 4, "tp": 2, "sequence_parallel": True}
    split = layer_elements(**axes, ep=2)
    whole = layer_elements(**axes, ep=2, expert_tp=1)
    assert whole - split == EXPERTS // 2 * EXPERT // 2


def test_states_of_experts_shard_over_the_ranks_with_the_same_experts() -> None:
    """World 16, tp 2, ep 4: dense states over 8 data ranks, those of experts over 16 / (4 x 2)."""
    run = run_of(
        world_size=16, tp=2, ep=4, sequence_parallel=True, sharding=Sharding.DISTRIBUTED_OPTIMIZER
    )
    assert (run.degrees.shard_ranks, run.degrees.expert_shard_ranks) == (8, 2)
    experts = EXPERTS // 4 * EXPERT // 2
    unit = run.chain.blocks[1].unit
    assert unit.shard == -(-(unit.whole - experts) // 8) + experts // 2


def test_as_many_rows_arrive_as_are_sent_whatever_ep() -> None:
    for ep in (2, 4, 8):
        run = run_of(world_size=8, ep=ep)
        given = dispatch(run.architecture, run.shape)
        assert (given.rows, given.arriving) == (SEQ, SEQ * CHOSEN)
        assert given.local_experts == EXPERTS // ep


def test_rows_of_other_tensor_parallel_ranks_arrive_too() -> None:
    axes = {"world_size": 8, "tp": 2, "ep": 4, "sequence_parallel": True}
    split = run_of(**axes)
    alone = run_of(**axes, expert_tp=1)
    assert dispatch(split.architecture, split.shape).arriving == SEQ // 2 * CHOSEN * 2
    assert dispatch(alone.architecture, alone.shape).arriving == SEQ // 2 * CHOSEN


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({"expert_load_permille": 1500}, 192),
        ({"expert_capacity_permille": 1250}, 160),
        ({"expert_load_permille": 2**20}, 4 * SEQ * CHOSEN),  # not above what there is
    ],
)
def test_a_stated_load_or_capacity_decides(settings: dict[str, int], rows: int) -> None:
    run = run_of(world_size=4, ep=4, **settings)
    assert dispatch(run.architecture, run.shape).arriving == rows


def test_the_worst_routing_sends_every_row_that_can() -> None:
    """With one expert on a rank, one choice of each token of all ranks at most."""
    run = run_of(world_size=8, ep=8)
    assert worst_load_permille(run.architecture, run.shape) == 8 * 1000 // CHOSEN
    run = run_of(world_size=4, ep=4)
    assert worst_load_permille(run.architecture, run.shape) == 4 * 1000


def test_the_worst_routing_brings_rows_of_tensor_parallel_ranks_too() -> None:
    run = run_of(world_size=8, tp=2, ep=4, sequence_parallel=True)
    given = dispatch(run.architecture, run.shape)
    worst = worst_load_permille(run.architecture, run.shape)
    # 4 x 2 ranks route 32 tokens each, and both choices of every token fall on this rank.
    assert given.arriving * worst // 1000 == 4 * 2 * (SEQ // 2) * CHOSEN


@pytest.mark.parametrize(
    ("axes", "field"),
    [
        ({"world_size": 3, "ep": 3}, "parallelism.ep"),
        ({"ep": 2}, "parallelism.ep"),
        ({"world_size": 4, "tp": 2, "ep": 2}, "parallelism.sequence_parallel"),
        ({"world_size": 32, "expert_tp": 32}, "parallelism.expert_tp"),
    ],
)
def test_what_cannot_be_divided_is_named(axes: dict[str, int], field: str) -> None:
    with pytest.raises(InvalidRequestError) as wrong:
        run_of(**axes)
    assert wrong.value.field == field


def test_a_model_without_experts_has_none_to_divide() -> None:
    dense = Document(
        format=DocumentFormat.HF_CONFIG,
        text="""{"model_type": "llama", "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}""",
    )
    with pytest.raises(InvalidRequestError, match="has none") as wrong:
        model_run(
            TrainingRun(
                documents=(dense,),
                training=Training(microbatch=1, seq=SEQ),
                parallelism=Parallelism(world_size=4, ep=2),
            )
        )
    assert wrong.value.violations[0].field == "parallelism.ep"
