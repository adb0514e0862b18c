"""LoRA and QLoRA of litgpt's and torchtune's tables: how far, and is every ablation in order.

What the rows leave open stands in ``estimate_recipes``. Rows of models or recipes that are not
described there are printed with the reason, not asked; torchtune's full finetuning is in the
section of offload.

The longest sample of litgpt's resource tables has no peer: the microbatch before it was shorter by
far. What that one leaves behind is not known, so the first microbatch of a run, which finds nothing
left behind, is compared with them.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations
from typing import Any

from tests.bench.estimate_optimizers import FULL
from tests.bench.estimate_recipes import LITGPT, STEPS, TORCHTUNE, Recipe, Tuned
from tests.bench.estimate_rows import Answered, answer, llama, rows
from tests.bench.table import Row, at_most

from haversack.estimate import EstimateRequest
from haversack.finetuning import Finetuning, StoredWeights
from haversack.questions import EstimateQuestion
from haversack.run import Device, Document, DocumentFormat, Optimizer, Precision, Training

SECTION = "adapters"
GIB = 2**30
LIMIT_PERCENT = 15.0
FULL_BATCH = 32  # tiny-llama/full.yaml
LOGIT_CHUNK = 128  # litgpt/finetune/lora.py: lm_head_chunk_size
_CONTRADICTED = {"litgpt-hub-phi-2-full": "its table says 4 devices, its file 2"}


def adapters() -> Iterator[Row]:
    """Every row, then the order of every two rows of one model, or of every step of an ablation."""
    found = {str(answered.row["id"]): answered for answered in adapter_runs()}
    for name, answered in found.items():
        ours, said = ours_of(answered), answered.row["value_bytes"]
        share = 100 * (ours / said - 1)
        what = f"{name}: {ours / GIB:.2f} against {said / GIB:.2f} GiB ({share:+.1f})"
        yield at_most(SECTION, what, abs(share), LIMIT_PERCENT, "%")
    for model in LITGPT:
        alike = [name for name in found if name.startswith(model)]
        yield from _in_order(model, list(combinations(alike, 2)), found)
    yield from _in_order("torchtune", STEPS, found)
    for row in _rows():
        if not _can_be_asked(row) and row["id"] not in FULL:
            what = f"{row['id']}: not asked ({_why_not(row)})"
            yield Row(SECTION, what, row["value_bytes"] / GIB, "GiB")


@cache
def adapter_runs() -> tuple[Answered, ...]:
    """Ask for every row that says what it takes."""
    return tuple(answer(row, _request(row)) for row in _rows() if _can_be_asked(row))


def says_its_peak(answered: Answered) -> bool:
    """Whether the peak of the answer is what the row has: of training, on samples of one length."""
    name = str(answered.row["id"])
    if name in TORCHTUNE:
        return not TORCHTUNE[name].of_loading
    tuned = _tuned(answered.row)
    return tuned is None or not tuned.alone or _stored(name) is StoredWeights.COMPUTE


def ours_of(answered: Answered) -> int:
    """Give our figure for what the row has: of the whole run, or of a part of it."""
    found = answered.estimate
    assert found is not None
    assert found.peak is not None, found.reason
    row, tuned = answered.row, _tuned(answered.row)
    peaks = {phase.name: phase.peak_bytes for phase in found.phases}
    if "-init" in str(row["id"]):
        return _of_loading(answered, peaks)
    if tuned is not None and tuned.alone:
        return max(size for name, size in peaks.items() if name.startswith("step 1 first"))
    reserved = row["quantity"] == "peak_reserved"
    return (found.peak.reserved if reserved else found.peak.allocated).expected_bytes


def _of_loading(answered: Answered, peaks: Mapping[str, int]) -> int:
    """Give the height of loading, as the row counts it; what stands then if nothing is said of it.

    ``memory_stats_log`` prints it once the model is there (torchtune's recipes, ``_setup_model``).
    """
    found = answered.estimate
    assert found is not None
    reserved = next((each.reserved_bytes for each in found.phases if each.reserved_bytes), None)
    if reserved is not None and answered.row["quantity"] == "peak_reserved":
        return reserved
    return peaks.get("quantizing", peaks["init"])


def _rows() -> list[Mapping[str, Any]]:
    kinds = ("litgpt", "torchtune", "peft")
    both = (*rows("published.json"), *rows("loading.json"))
    return [row for row in both if row["class"] in kinds]


def _tuned(row: Mapping[str, Any]) -> Tuned | None:
    return next((LITGPT[name] for name in LITGPT if row["id"].startswith(name)), None)


def _can_be_asked(row: Mapping[str, Any]) -> bool:
    if row["id"] in TORCHTUNE:
        return True
    # The full runs beside this one have devices that are not said, or contradict their own table.
    whole = row["id"].endswith("-full") and row["parallelism"]["world"] > 1
    return _tuned(row) is not None and "doubtful" not in row and not whole


def _why_not(row: Mapping[str, Any]) -> str:
    if row["parallelism"].get("world", 1) > 1 and "qlora" in row["id"]:
        return "a quantized base that is sharded is not modelled"
    if row["class"] == "peft":
        return "PEFT's table has neither length nor batch"
    if "doubtful" in row:
        return "below the states that its file keeps on one device"
    return _CONTRADICTED[row["id"]]


def _in_order(
    name: str, pairs: list[tuple[str, str]], found: Mapping[str, Answered]
) -> Iterator[Row]:
    if not pairs:
        return
    right = 0
    for one, other in pairs:
        more = ours_of(found[one]) < ours_of(found[other])
        right += more == (found[one].row["value_bytes"] < found[other].row["value_bytes"])
    what = f"{name}: pairs of rows in the right order, of {len(pairs)}"
    yield Row(SECTION, what, right, "pairs", f"= {len(pairs)}", right == len(pairs))


def _request(row: Mapping[str, Any]) -> EstimateRequest:
    tuned = _tuned(row)
    if tuned is None:
        return _torchtune(row, TORCHTUNE[row["id"]])
    return _litgpt(row, tuned)


def _litgpt(row: Mapping[str, Any], tuned: Tuned) -> EstimateRequest:
    whole, microbatch = row["id"].endswith("-full"), row["model"]["microbatch"]
    stored = _stored(row["id"])
    tuning = Finetuning(
        rank=tuned.rank,
        targets=tuned.targets,
        adapter_dropout=tuned.dropout,
        frozen_weights=stored,
        head_quantized=stored is not StoredWeights.COMPUTE,
    )
    return EstimateRequest(
        documents=(Document(format=DocumentFormat.HF_CONFIG, text=json.dumps(tuned.config)),),
        training=Training(
            microbatch=microbatch,
            seq=tuned.seq,
            accumulation=(FULL_BATCH if whole else tuned.batch) // microbatch,
            precision=Precision.BF16,
            optimizer=Optimizer.ADAMW,
            attention=tuned.attention,
            loss_chunks=-(-tuned.seq // LOGIT_CHUNK),
            finetuning=None if whole else tuning,
        ),
        device=Device(name=tuned.device),
        kernel_profile="litgpt",
        questions=(EstimateQuestion.BRIEF,),
    )


def _torchtune(row: Mapping[str, Any], recipe: Recipe) -> EstimateRequest:
    return EstimateRequest(
        documents=(llama(row["model"]),),
        training=Training(
            microbatch=row["model"]["microbatch"],
            seq=recipe.seq,
            accumulation=recipe.accumulation,
            precision=Precision.BF16,
            optimizer=Optimizer.ADAMW,
            recompute=recipe.recompute,
            loss=recipe.loss,
            finetuning=Finetuning(
                rank=recipe.rank,
                targets=recipe.targets,
                frozen_weights=recipe.stored,
                quantized_by=recipe.quantized_by,
            ),
        ),
        parallelism=recipe.parallelism,
        kernel_profile="torchtune-compile" if recipe.compiled else "torchtune-eager",
        questions=(EstimateQuestion.BRIEF,),
    )


def _stored(row_id: str) -> StoredWeights:
    if "nf4-dq" in row_id:
        return StoredWeights.NF4_DOUBLE
    nf4 = "nf4" in row_id or "qlora" in row_id
    return StoredWeights.NF4 if nf4 else StoredWeights.COMPUTE
