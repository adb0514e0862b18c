"""Published tables: torchtitan, torchtune, litgpt; and what other tools said of measured runs.

Rows name models and settings in words; here they become requests. What a row leaves open is left
open in the request too.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from tests.bench.estimate_measured import measured
from tests.bench.estimate_rows import Answered, answer, llama, megatron, peak, rows
from tests.bench.table import Row, at_most

from haversack.estimate import EstimateRequest
from haversack.parallelism import Parallelism, PipelineSchedule, Sharding
from haversack.questions import EstimateQuestion
from haversack.run import (
    Attention,
    Optimizer,
    Precision,
    Recompute,
    Training,
)
from haversack_server.estimate.answer import estimate
from haversack_server.memory.kernel_profile import load

GIB = 2**30
_SCHEDULES = {"1f1b": PipelineSchedule.ONE_F_ONE_B, "interleaved": PipelineSchedule.INTERLEAVED}


def torchtitan() -> Iterator[Row]:
    """Reserved bytes of torchtitan's tables, within 10 %, with pipelines 15 %."""
    for answered in torchtitan_runs():
        yield reserved_row("torchtitan", answered)


@cache
def torchtitan_runs() -> tuple[Answered, ...]:
    """Ask for every run of torchtitan's tables."""
    return tuple(answer(row, _titan(row)) for row in _of_class("torchtitan"))


def _of_class(name: str) -> list[Mapping[str, Any]]:
    return [row for row in rows("published.json") if row["class"] == name]


def reserved_row(section: str, answered: Answered) -> Row:
    """Judge the reserved bytes of one run of the tables by its bound."""
    row = answered.row
    if not answered.known or answered.estimate is None or answered.estimate.peak is None:
        return Row(section, f"{row['id']}: no figure ({answered.why_not[:60]})", 0, "")
    ours = answered.estimate.peak.reserved.expected_bytes
    share = 100 * (ours / row["value_bytes"] - 1)
    what = (
        f"{row['id']}: {ours / GIB:.1f} against {row['value_bytes'] / GIB:.1f} GiB ({share:+.1f})"
    )
    gate = 15.0 if row["parallelism"].get("pp", 1) > 1 else 10.0
    return at_most(section, what, abs(share), gate, "%")


def _titan(row: Mapping[str, Any]) -> EstimateRequest:
    model, degrees = row["model"], row["parallelism"]
    tp, pp, cp = (degrees.get(axis, 1) for axis in ("tp", "pp", "cp"))
    schedule = degrees.get("schedule")
    microbatch = model["microbatch"]
    return EstimateRequest(
        documents=(llama(model),),
        training=Training(
            # torchtitan splits the local batch into as many microbatches as there are stages.
            microbatch=microbatch // pp,
            accumulation=pp,
            no_sync=pp > 1 or None,  # gradients are reduced with the last microbatch
            seq=model["seq"],
            precision=Precision.FP32_BF16_COMPUTE,
            optimizer=Optimizer.ADAMW,
            attention=Attention.FLASH,
            recompute=Recompute.FULL if row["ac"] == "full" else Recompute.SELECTIVE,
        ),
        parallelism=Parallelism(
            world_size=degrees["fsdp"] * tp * pp * cp,
            dp_shard=degrees["fsdp"],
            tp=tp,
            pp=pp,
            cp=cp,
            sequence_parallel=degrees.get("sp"),
            sharding=Sharding.FSDP2,
            # Units stay gathered between the microbatches of a pipeline.
            reshard_after_forward=False if pp > 1 else None,
            virtual_stages=2 if schedule == "interleaved" else None,
            pipeline_schedule=_SCHEDULES[schedule] if schedule else PipelineSchedule.UNSPECIFIED,
        ),
        questions=(EstimateQuestion.BRIEF,),
        kernel_profile="compile" if "compile" in row["notes"] else "torchtitan-eager",
    )


def negative() -> Iterator[Row]:
    """Nearer to the measurement than the tool, in every row."""
    for row in rows("negative.json"):
        measured, ours = _OURS[row["ours"]](row)
        if ours is None:
            yield Row("negative", f"{row['id']}: no figure", 0, "", "nearer", False)
            continue
        miss, tool = abs(ours - measured), abs(row["said_bytes"] - measured)
        what = f"{row['id']}: off by {miss / GIB:.2f} GiB, the tool by {tool / GIB:.2f}"
        yield Row("negative", what, miss / tool, "x", "< 1", miss < tool)


def _whole_model(row: Mapping[str, Any]) -> tuple[int, int | None]:
    """A model that is loaded before it is partitioned is whole on its device at first."""
    training = Training(precision=Precision.BF16)
    found = estimate(EstimateRequest(parameter_count=row["parameters"], training=training))
    parameters = next(term.bytes for term in found.terms if term.name == "parameters")
    return row["measured_bytes"], parameters + load("deepspeed").cuda_context_bytes


def _megatron_run(row: Mapping[str, Any]) -> tuple[int, int | None]:
    answered = next(each for each in megatron() if each.row["id"] == row["measured_of"])
    return answered.row["peak_bytes"], peak(answered).ours if answered.known else None


def _measured_run(row: Mapping[str, Any]) -> tuple[int, int | None]:
    answered = next(each for each in measured() if each.row["id"] == row["measured_of"])
    found = answered.estimate.peak if answered.estimate is not None else None
    ours = found.allocated.expected_bytes if found is not None else None
    return answered.row["peak_bytes"], ours


_OURS: Mapping[str, Callable[[Mapping[str, Any]], tuple[int, int | None]]] = {
    "whole model": _whole_model,
    "megatron": _megatron_run,
    "measured": _measured_run,
}
