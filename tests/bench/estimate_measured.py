"""Training steps that we measured on a GPU: Hugging Face models, eager, one process.

The rows say device, driver, torch and date. What a request cannot say (padding, outputs that are
dropped at once) is left out of the gate and printed.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from statistics import median
from typing import Any

from tests.bench.estimate_rows import Answered, Error, answer, rows
from tests.bench.table import Row, at_most

from haversack.estimate import EstimateRequest
from haversack.parallelism import Parallelism, Sharding
from haversack.questions import EstimateQuestion
from haversack.run import (
    Attention,
    Device,
    Document,
    DocumentFormat,
    Optimizer,
    Precision,
    Recompute,
    Training,
)
from haversack_server.estimate.answer import estimate
from haversack_server.estimate.reserved import REPLAYED

MIB = 2**20
SECTION = "measured"
_PRECISIONS = {
    "bf16": Precision.BF16,
    "fp32": Precision.FP32,
    "fp32_autocast_bf16": Precision.FP32_BF16_COMPUTE,
    "fp32_params_bf16_compute": Precision.FP32_BF16_COMPUTE,
}
_OPTIMIZERS = {
    "adamw_fused": Optimizer.ADAMW,
    "adamw_foreach": Optimizer.ADAMW_FOREACH,
    "sgd": Optimizer.SGD,
    "sgd_momentum": Optimizer.SGD_MOMENTUM,
}


@cache
def measured() -> tuple[Answered, ...]:
    """Ask for every measured run."""
    return tuple(answer(row, _request(row)) for row in rows("measured_h200.json"))


def _request(row: Mapping[str, Any]) -> EstimateRequest:
    settings = row["settings"]
    eager = settings["attention"] == "eager"
    sharded = settings["wrap"] == "fsdp2"
    # DDP on one rank has its buckets too; a request has them from two ranks on.
    ranks = 2 if settings["wrap"] == "ddp" else 1
    return EstimateRequest(
        documents=(Document(format=DocumentFormat.HF_CONFIG, text=json.dumps(row["config"])),),
        training=Training(
            microbatch=settings["microbatch"],
            seq=settings["seq"],
            accumulation=settings["accumulation"],
            precision=_PRECISIONS[settings["precision"]],
            optimizer=_OPTIMIZERS[settings["optimizer"]],
            attention=Attention.EAGER if eager else Attention.FLASH,
            recompute=Recompute.FULL if settings["recompute"] else Recompute.NONE,
        ),
        parallelism=Parallelism(
            world_size=ranks, sharding=Sharding.FSDP2 if sharded else Sharding.UNSPECIFIED
        ),
        device=Device(name="h200"),
        questions=(EstimateQuestion.BRIEF,),
    )


def cannot_be_said(row: Mapping[str, Any]) -> bool:
    """Tell whether a row has a setting that a request has no field for."""
    settings = row["settings"]
    return settings["padding"] or not settings["outputs_held"]


def peaks() -> Iterator[Row]:
    """Peak allocated bytes, run by run, and their median."""
    found = []
    for each in measured():
        if not each.known or each.estimate is None or each.estimate.peak is None:
            yield Row(SECTION, f"{each.row['id']}: no figure ({each.why_not[:60]})", 0, "")
            continue
        error = Error(each.estimate.peak.allocated.expected_bytes, each.row["peak_bytes"])
        unsaid = cannot_be_said(each.row)
        if not unsaid:
            found.append(100 * abs(error.share))
        note = ", a setting without a field" if unsaid else ""
        off = (error.ours - error.measured) / MIB
        what = f"peak {each.row['id']} ({off:+,.0f} of {error.measured / MIB:,.0f} MiB{note})"
        yield Row(SECTION, what, 100 * error.share, "%")
    if found:
        yield at_most(SECTION, f"peak: median of {len(found)} runs", median(found), 2.5, "%")
        yield at_most(SECTION, f"peak: worst of {len(found)} runs", max(found), 8.0, "%")


def phases() -> Iterator[Row]:
    """Peaks of forward (the loss is part of it), backward and optimizer, in steps 1 and 2."""
    found: list[float] = []
    for each in measured():
        if not each.known or cannot_be_said(each.row) or each.row["settings"]["accumulation"] > 1:
            continue
        apart = {name: 100 * abs(error.share) for name, error in _phases_of(each)}
        found += apart.values()
        worst = max(apart, key=lambda name: apart[name])
        yield Row(SECTION, f"phases {each.row['id']}: furthest in {worst}", apart[worst], "%")
    yield at_most(SECTION, f"phases: median of {len(found)}", median(found), 2.5, "%")


def _phases_of(answered: Answered) -> Iterator[tuple[str, Error]]:
    assert answered.estimate is not None
    ours = {phase.name: phase.peak_bytes for phase in answered.estimate.phases}
    for step, measured_in in enumerate(answered.row["phase_peak_bytes"], start=1):
        for name in ("forward", "backward", "optimizer"):
            parts = ("forward", "loss") if name == "forward" else (name,)
            expected = max(ours[f"step {step} {part}"] for part in parts)
            yield f"step {step} {name}", Error(expected, measured_in[name])


def reserved() -> Iterator[Row]:
    """What the allocator holds at last: by a factor, and by a replay where there is one."""
    by_factor, by_replay = [], []
    for each in measured():
        if each.estimate is None or each.estimate.peak is None or cannot_be_said(each.row):
            continue
        asked = replace(each.request, questions=(EstimateQuestion.ALLOCATOR,))
        found = estimate(asked)
        if REPLAYED not in found.assumptions or found.peak is None:
            continue
        said = each.row["reserved_bytes"]
        factor, replayed = (
            100 * Error(peak.reserved.expected_bytes, said).share
            for peak in (each.estimate.peak, found.peak)
        )
        by_factor.append(abs(factor))
        by_replay.append(abs(replayed))
        inside = found.peak.reserved.high_bytes >= said
        what = f"{each.row['id']}: {said / MIB:,.0f} MiB, by a factor {factor:+.1f} %"
        yield Row("reserved", f"{what}, high end {'holds' if inside else 'FAILS'}", replayed, "%")
    what = f"median of {len(by_replay)} replays, not above that of the factor"
    yield at_most("reserved", what, median(by_replay), round(median(by_factor), 2), "%")
    yield Row("reserved", "worst by the factor", max(by_factor), "%")
    yield Row("reserved", "worst by the replay", max(by_replay), "%")
