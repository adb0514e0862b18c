"""Optimizer kinds and offload: published formulas, torchtune's tables, and ablation steps in order.

torchtune's README does not print its recipes; they stand in ``recipes/configs/llama3_1``: 8B on one
device (``8B_full_single_device.yaml``) with bitsandbytes' paged 8-bit AdamW in the backward, 70B
on eight (``70B_full.yaml``) with FSDP2's CPU offload and a fused AdamW. Both checkpoint activations
and chunk the loss; the table says compiled. Its maintainers name the same four for the 24 GB card
(issue 2168 of pytorch/torchtune); on the larger card, activations are taken not to be checkpointed,
as in its LoRA row (``estimate_recipes``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tests.bench.estimate_rows import llama, rows
from tests.bench.table import Row, at_most

from haversack.estimate import Estimate, EstimateRequest
from haversack.parallelism import Parallelism, Sharding
from haversack.questions import EstimateQuestion
from haversack.run import (
    Loss,
    Optimizer,
    Precision,
    Recompute,
    Training,
)
from haversack_server.estimate.answer import estimate

SECTION = "offload"
GIB = 2**30
LIMIT_PERCENT = 15.0
# "32M" in the examples is the table of T5-3B, 32,128 tokens of 1,024, cut to whole millions.
_UNCUT = {32_000_000: 32_128 * 1024}
# Full finetuning of torchtune's README, which is asked here.
FULL = ("tune-8b-full-4090", "tune-8b-full-a6000", "tune-70b-full-8a100")
# Bytes that DeepSpeed's estimator counts for each parameter of the largest layer.
LARGEST_LAYER_BYTES = 4
# Row, sharding, and whether parameters are on the host beside the optimizer.
_DOCUMENTED = (
    ("ds-z2-t5-3b-8-cpu", Sharding.ZERO_2, False),
    ("ds-z3-t5-3b-8-none-cpu", Sharding.ZERO_3, False),
    ("ds-z3-t5-3b-8-cpu-cpu", Sharding.ZERO_3, True),
    ("ds-z3-t5-large-4-case3", Sharding.ZERO_3, False),
    ("ds-4527-est-opt-cpu", Sharding.ZERO_3, False),
)


def offload() -> Iterator[Row]:
    """Yield every comparison."""
    published = {row["id"]: row for row in rows("published.json")}
    yield from _documented(published)
    yield from _torchtune(published)
    yield from _in_order()


def _documented(published: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    """DeepSpeed's documented estimates with offload: its formula is ours and the largest layer."""
    for name, sharding, parameters_too in _DOCUMENTED:
        row = published[name]
        found = estimate(
            EstimateRequest(
                parameter_count=int(row["model"]["params"]),
                parallelism=Parallelism(
                    world_size=row["parallelism"]["dp"],
                    sharding=sharding,
                    offload_optimizer=True,
                    offload_parameters=parameters_too,
                ),
            )
        )
        printed = int(row["model"].get("largest_layer_params", 0))
        layer = LARGEST_LAYER_BYTES * _UNCUT.get(printed, printed)
        off = abs(found.steady_bytes + layer - row["value_bytes"]) / row["value_bytes"] * 100
        yield at_most(SECTION, f"{name}, with the largest layer", off, _printed(row), "%")


def _printed(row: Mapping[str, Any]) -> float:
    """Half a hundredth of a GiB, which is the last digit that was printed, in percent."""
    said: int = row["value_bytes"]
    return 0.005 * GIB / said * 100


def _asked(model: Mapping[str, Any], training: Training, **axes: Any) -> Estimate:
    return estimate(
        EstimateRequest(
            documents=(llama(model),),
            training=training,
            parallelism=Parallelism(**axes),
            kernel_profile="torchtune-compile",
            questions=(EstimateQuestion.BRIEF,),
        )
    )


def _step(optimizer: Optimizer, **settings: Any) -> Training:
    given = {"recompute": Recompute.FULL, "loss": Loss.CHUNKED} | settings
    return Training(microbatch=2, seq=2048, precision=Precision.BF16, optimizer=optimizer, **given)


def _peak(found: Estimate) -> int:
    assert found.peak is not None, found.reason
    return found.peak.allocated.expected_bytes


def _torchtune(published: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    paged = _step(Optimizer.PAGED_ADAMW_8BIT, optimizer_in_backward=True)
    offloaded = {"world_size": 8, "sharding": Sharding.FSDP2, "offload_parameters": True}
    kept = replace(paged, recompute=Recompute.NONE)
    runs: dict[str, tuple[str, Training, dict[str, Any]]] = {
        "tune-8b-full-4090": ("paged 8-bit AdamW in backward", paged, {}),
        "tune-8b-full-a6000": ("the same, not checkpointed", kept, {}),
        "tune-70b-full-8a100": ("FSDP2 offload, AdamW", _step(Optimizer.ADAMW), offloaded),
    }
    assert set(runs) == set(FULL)
    for name, (words, training, axes) in runs.items():
        row = published[name]
        found = _peak(_asked(row["model"], training, **axes))
        off = abs(found / row["value_bytes"] - 1) * 100
        what = f"{name} ({words}): {found / GIB:.2f} of {row['value_bytes'] / GIB:.2f} GiB"
        yield at_most(SECTION, what, off, LIMIT_PERCENT, "%")


_ABLATIONS = (
    ("AdamW", _step(Optimizer.ADAMW, recompute=Recompute.NONE, loss=Loss.FP32)),
    ("+ recomputation", _step(Optimizer.ADAMW, loss=Loss.FP32)),
    ("+ 8-bit", _step(Optimizer.ADAMW_8BIT, loss=Loss.FP32)),
    (
        "+ in backward",
        _step(Optimizer.ADAMW_8BIT, loss=Loss.FP32, optimizer_in_backward=True),
    ),
    ("+ chunked loss", _step(Optimizer.ADAMW_8BIT, optimizer_in_backward=True)),
    ("+ paged", _step(Optimizer.PAGED_ADAMW_8BIT, optimizer_in_backward=True)),
)


def _in_order() -> Iterator[Row]:
    """Every step of torchtune's page on memory lowers the peak (docs, memory_optimizations)."""
    model = next(row["model"] for row in rows("published.json") if row["id"] == "tune-8b-full-4090")
    peaks = [(words, _peak(_asked(model, training))) for words, training in _ABLATIONS]
    for (_, before), (words, after) in pairwise(peaks):
        what = f"8B, {words}: {before / GIB:.2f} to {after / GIB:.2f} GiB"
        yield Row(SECTION, what, (after - before) / GIB, "GiB", "< 0", after < before)
