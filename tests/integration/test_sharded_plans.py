"""Plans of a workload on several ranks: predicted, certified without the other ranks, and real.

The certificate follows the storages of a step under ``fully_shard`` or DistributedDataParallel and
reads no prediction; the real step runs on ranks of gloo, under the worker's own tracker.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are sharded")

import torch
from tests.integration.gloo_ranks import run_ranks
from tests.integration.planned_gpt import (
    APART,
    MIXED,
    UNSPECIFIED,
    ddp,
    fsdp2,
    planned,
    profiled,
)
from tests.integration.small_gpt import BLOCKS, workload_of

from haversack import write_plan
from haversack.errors import InvalidRequestError
from haversack.parallelism import Parallelism
from haversack.plan import Plan
from haversack.run import BlockAction, NumberType, Precision
from haversack.spread import spread_of
from haversack.torch import certify, profile
from haversack.torch.whole_step import whole_step

WAYS: dict[str, tuple[Parallelism, Precision, NumberType]] = {
    "8 shards": (fsdp2(8), UNSPECIFIED, NumberType.UNSPECIFIED),
    "2 shards that stay gathered": (
        fsdp2(2, reshard_after_forward=False),
        UNSPECIFIED,
        NumberType.UNSPECIFIED,
    ),
    "2 replicas of 2 shards": (fsdp2(4, dp_shard=2), UNSPECIFIED, NumberType.UNSPECIFIED),
    "8 shards, resharded to 4, reduced in fp32": (
        fsdp2(8, reshard_ranks=4),
        MIXED,
        NumberType.UNSPECIFIED,
    ),
    "2 replicas of 2 shards, reduced in bf16": (fsdp2(4, dp_shard=2), MIXED, NumberType.BF16),
    "2 replicas": (ddp(2), UNSPECIFIED, NumberType.UNSPECIFIED),
    "2 replicas whose gradients are views": (
        ddp(2, gradient_as_bucket_view=True),
        UNSPECIFIED,
        NumberType.UNSPECIFIED,
    ),
}
QUICK = ("8 shards", "2 replicas of 2 shards, reduced in bf16", "2 replicas")


@pytest.mark.parametrize(
    "way", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in WAYS]
)
def test_a_plan_of_several_ranks_needs_what_it_predicts(way: str) -> None:
    parallelism, precision, reduce_type = WAYS[way]
    workload, found = profiled(precision)
    answer = planned(parallelism, 300, found, reduce_type=reduce_type)
    assert answer.parallelism == parallelism
    assert answer.precision is precision
    hook = sys.excepthook
    certificate = certify(workload, answer)
    assert sys.excepthook is hook
    with pytest.raises(
        InvalidRequestError, match=r"the plan is for \d ranks under .*, and one ran"
    ):
        certify(workload, answer, parallelism=fsdp2(1))
    assert answer.predicted_peak_bytes is not None
    assert answer.extra_ns > 0
    assert certificate.holds
    assert certificate.findings == ()
    seen = certificate.observed_peak_bytes
    assert seen <= answer.predicted_peak_bytes <= APART * seen
    optimizer = next(each for each in certificate.phases if each.phase == "optimizer")
    assert optimizer.observed_bytes <= optimizer.predicted_bytes <= APART * optimizer.observed_bytes


SETTINGS: dict[str, tuple[dict[str, Any], Parallelism, dict[str, Any]]] = {
    "weights are more than activations": ({"rows": 1}, fsdp2(8), {}),
    "rows that ranks do not divide, a unit gathered ahead": (
        {"width": 60},
        fsdp2(8, prefetch_units=1),
        {},
    ),
    "two microbatches on replicas of shards": ({}, fsdp2(8, dp_shard=4), {"accumulation": 2}),
    "two microbatches on replicas": (
        {"rows": 1},
        ddp(2, gradient_as_bucket_view=True),
        {"accumulation": 2},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SETTINGS)
def test_so_do_other_settings(case: str) -> None:
    of_workload, parallelism, of_training = SETTINGS[case]
    workload = workload_of(**of_workload)
    found = profile(workload)
    answer = planned(parallelism, 300, found, **of_training)
    microbatches = of_training.get("accumulation", 1)
    certificate = certify(workload, answer, microbatches=microbatches)
    assert answer.predicted_peak_bytes is not None
    seen = certificate.observed_peak_bytes
    assert seen <= answer.predicted_peak_bytes <= APART * seen
    # Phases that are no peak may be well below; above by the loss of the microbatch before.
    assert all(each.observed_bytes <= each.predicted_bytes + 4 for each in certificate.phases)


@pytest.mark.parametrize("parallelism", [fsdp2(2), ddp(2)])
def test_a_certified_model_is_left_as_it_was(parallelism: Parallelism) -> None:
    workload, _ = profiled()
    model: Any = workload.model

    def state() -> list[Any]:
        modules = [(type(each), dict(each.__dict__)) for each in model.modules()]
        hooks = [
            (len(each._forward_hooks), len(each._forward_pre_hooks)) for each in model.modules()
        ]
        return [*modules, hooks, [id(each) for each in model.parameters()]]

    before = state()
    saved = Plan(
        actions=tuple(BlockAction(block=f"h.{place}", option="save") for place in range(BLOCKS))
    )
    first = whole_step(workload, saved, parallelism=parallelism)
    assert state() == before
    assert not torch.distributed.is_initialized()
    assert whole_step(workload, saved, parallelism=parallelism) == first


REAL: dict[str, tuple[Parallelism, Precision]] = {
    "sharded": (fsdp2(2), UNSPECIFIED),
    "replicas of shards in mixed precision": (fsdp2(4, dp_shard=2), MIXED),
    "replicas": (ddp(2), UNSPECIFIED),
    "replicas whose gradients are views": (ddp(2, gradient_as_bucket_view=True), UNSPECIFIED),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REAL)
def test_real_ranks_compute_the_same_and_need_what_is_certified(case: str, tmp_path: Path) -> None:
    parallelism, precision = REAL[case]
    workload, found = profiled(precision)
    answer = planned(parallelism, 300, found)
    observed = whole_step(workload, answer, parallelism=parallelism)
    plan_file = str(tmp_path / "plan.json")
    write_plan(answer, plan_file)
    ranks = spread_of(parallelism).ranks
    highest = max(observed.of_phase("forward"), observed.of_phase("backward"))
    for said, failed in run_ranks("planned_ranks.py", ranks, tmp_path, plan_file):
        equal, peak_bytes = said.split() or (failed, "0")
        assert equal == "True", failed
        assert int(peak_bytes) <= highest <= APART * int(peak_bytes)
