"""Settings that change nothing beside a run's others are named, and those that count are not.

Every rule is tried on both sides: a run in which the setting is named and every figure is as
without it, and one in which it is not named and figures change.
"""

from dataclasses import fields, replace
from typing import Any

import pytest
from tests.unit.memory.small_runs import (
    ALL_IN_SHARDS,
    CP,
    DDP,
    EIGHT_BITS,
    EP,
    EXPERTS,
    FSDP1,
    FSDP2,
    FULL,
    MEGATRON,
    OFFLOADED,
    ONE,
    PP,
    SAVED,
    SELECTIVE,
    STACKS,
    TP,
    ZERO_1,
    ZERO_2,
    ZERO_3,
    Run,
    figures,
    named,
    trained,
    tuned,
    with_setting,
)

from haversack.errors import HaversackError
from haversack.finetuning import Finetuning, StoredWeights
from haversack.parallelism import (
    BackwardPrefetch,
    ContextParallel,
    Parallelism,
    PipelineSchedule,
    Sharding,
    WrapPolicy,
)
from haversack.training import (
    Loss,
    NumberType,
    OptimizerKernel,
    RecomputeMethod,
    RecomputeModule,
    StateDict,
    Training,
)
from haversack_server.estimate.answer import estimate
from haversack_server.memory.unread import RULES

# Setting and value; a run in which it is named, and one in which it counts.
CASES: list[tuple[str, Any, Run, Run]] = [
    ("parallelism.sequence_parallel", True, ONE, TP),
    ("parallelism.context_parallel", ContextParallel.ALL_TO_ALL, TP, CP),
    ("parallelism.pipeline_schedule", PipelineSchedule.GPIPE, FSDP2, PP),
    ("parallelism.expert_tp", 2, DDP, replace(EP, parallelism=Parallelism(world_size=4, ep=2))),
    ("parallelism.expert_load_permille", 1500, replace(ONE, model=EXPERTS), EP),
    ("parallelism.expert_capacity_permille", 1200, TP, EP),
    ("parallelism.sharding", Sharding.ZERO_2, ONE, DDP),
    ("parallelism.prefetch_units", 2, FSDP1, FSDP2),
    ("parallelism.reshard_ranks", 2, FSDP1, FSDP2),
    ("parallelism.reshard_after_forward", False, ZERO_3, FSDP1),
    ("parallelism.wrap", WrapPolicy.LAYERS, DDP, FSDP2),
    ("parallelism.layers_per_unit", 2, ZERO_2, FSDP1),
    ("parallelism.backward_prefetch", BackwardPrefetch.NONE, FSDP2, FSDP1),
    ("parallelism.forward_prefetch", True, FSDP2, FSDP1),
    ("parallelism.limit_all_gathers", False, DDP, FSDP1),
    ("parallelism.reduce_bucket_elements", 1000, DDP, ZERO_1),
    ("parallelism.overlap_reduce", True, ZERO_1, ZERO_2),
    ("parallelism.contiguous_gradients", False, ZERO_1, ZERO_3),
    ("parallelism.prefetch_elements", 0, ZERO_2, ALL_IN_SHARDS),
    ("parallelism.max_live_elements", 0, ZERO_2, ALL_IN_SHARDS),
    ("parallelism.max_reuse_elements", 0, FSDP2, ALL_IN_SHARDS),
    ("parallelism.persistent_elements", 0, FSDP1, ZERO_3),
    ("parallelism.gradient_as_bucket_view", True, FSDP2, DDP),
    ("parallelism.pin_memory", True, FSDP2, OFFLOADED),
    ("parallelism.ranks_per_node", 2, ZERO_2, OFFLOADED),
    ("training.no_sync", True, DDP, FSDP2),
    ("training.state_dict", StateDict.FULL, FSDP2, SAVED),
    ("training.reduce_type", NumberType.BF16, DDP, FSDP1),
    ("training.optimizer_kernel", OptimizerKernel.FOREACH, OFFLOADED, ONE),
    ("training.loss_chunks", 2, ONE, trained(loss=Loss.CHUNKED)),
    ("training.loss_parallel", True, DDP, TP),
    ("training.target_seq", 64, ONE, Run(model=STACKS)),
    ("training.fp8_parameters", True, replace(ONE, profile=MEGATRON), EIGHT_BITS),
    ("training.recompute_modules", (RecomputeModule.MLP,), EIGHT_BITS, SELECTIVE),
    ("training.recompute_method", RecomputeMethod.BLOCK, SELECTIVE, FULL),
    ("training.recompute_layers", 2, ONE, FULL),
    ("training.finetuning.adapter_dropout", 0.1, tuned(trained_parts=("head",)), tuned(rank=8)),
    ("training.finetuning.adapter_in_fp32", True, tuned(trained_parts=("head",)), tuned(rank=8)),
    (
        "training.finetuning.head_quantized",
        True,
        tuned(rank=8),
        tuned(rank=8, frozen_weights=StoredWeights.INT8),
    ),
]
# What decides figures in every run of a described model, or is refused where it cannot.
ALWAYS = {
    "parallelism": {"world_size", "dp_replicate", "dp_shard", "tp", "pp", "cp", "ep"}
    | {"virtual_stages", "offload_optimizer", "offload_parameters"},
    "training": {"microbatch", "seq", "accumulation", "precision", "optimizer", "attention"}
    | {"recompute", "actions", "occasions", "loss", "finetuning", "optimizer_in_backward", "fp8"}
    | {"offload_modules"},
    "training.finetuning": {"rank", "targets", "trained_parts", "frozen_weights", "quantized_by"},
}


@pytest.mark.parametrize(("path", "value", "in_vain", "counts"), CASES, ids=lambda each: each)
def test_a_setting_is_named_where_it_changes_nothing_and_only_there(
    path: str, value: Any, in_vain: Run, counts: Run
) -> None:
    plain = in_vain.request()
    answer = estimate(with_setting(plain, path, value))
    assert named(answer) == {path}
    assert figures(answer) == figures(estimate(plain))
    (sentence,) = answer.ignored_inputs
    assert sentence == f"{path}: read {RULES[path][0]} only"
    plain = counts.request()
    answer = estimate(with_setting(plain, path, value))
    assert named(answer) == set()
    assert figures(answer) != figures(estimate(plain))


def test_layers_of_stages_are_named_where_there_is_one_stage() -> None:
    plain = DDP.request()
    answer = estimate(with_setting(plain, "parallelism.stage_layers", (4,)))
    assert named(answer) == {"parallelism.stage_layers"}
    assert figures(answer) == figures(estimate(plain))
    answer = estimate(with_setting(PP.request(), "parallelism.stage_layers", (1, 3)))
    assert named(answer) == set()
    assert figures(answer) != figures(estimate(PP.request()))


def test_every_setting_has_a_rule_or_always_counts() -> None:
    assert {path for path, *_ in CASES} == set(RULES) - {"parallelism.stage_layers"}
    for noun, kind in (
        ("parallelism", Parallelism),
        ("training", Training),
        ("training.finetuning", Finetuning),
    ):
        ruled = {path.removeprefix(f"{noun}.") for path in RULES if path.startswith(noun)}
        assert ruled | ALWAYS[noun] >= {each.name for each in fields(kind)}
        assert not ruled & ALWAYS[noun]


@pytest.mark.slow
@pytest.mark.parametrize(
    "run", [ONE, DDP, ZERO_1, ZERO_2, ZERO_3, FSDP1, FSDP2, TP, PP, CP, EP, OFFLOADED, SAVED]
)
@pytest.mark.parametrize("more", [ONE, FULL, SELECTIVE, tuned(rank=8), trained(loss=Loss.CHUNKED)])
def test_what_is_named_changes_no_figure_of_any_run(run: Run, more: Run) -> None:
    """Every setting of the table, on every combination of a division and a way to train."""
    training = replace(more.training, occasions=run.training.occasions)
    plain = replace(run, training=training).request()
    before = figures(estimate(plain))
    tried = 0
    for path, value, *_ in CASES:
        try:
            answer = estimate(with_setting(plain, path, value))
        except (HaversackError, AttributeError, TypeError):
            continue  # refused beside this run, or a setting of finetuning without any
        tried += 1
        if path in named(answer):
            assert figures(answer) == before, path
    assert tried > 30
