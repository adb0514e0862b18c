"""LoRA and QLoRA of litgpt's tables: how far, and whether every ablation is in the right order.

Models are described by their public sizes, adapters as litgpt's configuration files have them
(``config_hub/finetune/MODEL/lora.yaml``: dropout 0.05; the resource tables use the defaults: rank 8
on queries and values). Rows of models, lengths or recipes that are not described here are printed,
not answered; two of torchtune's are in the section of offload.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

from tests.bench.estimate_rows import Answered, answer, rows
from tests.bench.table import Row, at_most

from haversack.estimate import EstimateRequest
from haversack.finetuning import Finetuning, StoredWeights
from haversack.questions import EstimateQuestion
from haversack.run import (
    Attention,
    Device,
    Document,
    DocumentFormat,
    Loss,
    Optimizer,
    Precision,
    Training,
)

SECTION = "adapters"
GIB = 2**30
LIMIT_PERCENT = 15.0
FULL_ACCUMULATION = 8  # tiny-llama/full.yaml: 32 samples in microbatches of 4
QUERY_VALUE = ("query", "value")
EVERYWHERE = ("query", "key", "value", "output", "gate", "up", "down", "head")


@dataclass(frozen=True, slots=True)
class Tuned:
    """A model of the tables, its adapters, and the length that sets the peak."""

    config: Mapping[str, Any]
    rank: int
    targets: tuple[str, ...]
    seq: int
    device: str


def _llama(hidden: int, layers: int, heads: int, keys: int, ffn: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "intermediate_size": ffn,
        "vocab_size": 32_000,
        "tie_word_embeddings": False,
    }


LLAMA_2_7B = _llama(4096, 32, 32, 32, 11_008)
TINY_LLAMA = _llama(2048, 22, 32, 4, 5632)
MISTRAL_7B = _llama(4096, 32, 32, 8, 14_336)
PHI_1_5 = {
    "model_type": "phi",
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "intermediate_size": 8192,
    "vocab_size": 51_200,
    "partial_rotary_factor": 0.5,
    "hidden_act": "gelu_pytorch_tanh",  # litgpt's is one kernel
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
}
MODELS = {
    "litgpt-lora-llama2-7b": Tuned(LLAMA_2_7B, 8, QUERY_VALUE, 1304, "a100-40gb"),
    "litgpt-lora-phi-1.5": Tuned(PHI_1_5, 8, QUERY_VALUE, 1044, "a100-40gb"),
    "litgpt-hub-llama-2-7b": Tuned(LLAMA_2_7B, 32, QUERY_VALUE, 512, "a10g"),
    "litgpt-hub-mistral-7b": Tuned(MISTRAL_7B, 32, QUERY_VALUE, 512, "a10g"),
    "litgpt-hub-tiny-llama": Tuned(TINY_LLAMA, 32, EVERYWHERE, 512, "a10g"),
}


def adapters() -> Iterator[Row]:
    """Every row, then the order of every two rows of one model."""
    found: dict[str, list[tuple[int, int]]] = {}
    for answered in adapter_runs():
        row, ours = answered.row, _ours(answered)
        found.setdefault(_model_of(row) or "", []).append((ours, row["value_bytes"]))
        share = 100 * (ours / row["value_bytes"] - 1)
        what = f"{row['id']}: {ours / GIB:.2f} against {row['value_bytes'] / GIB:.2f} GiB"
        yield at_most(SECTION, f"{what} ({share:+.1f})", abs(share), LIMIT_PERCENT, "%")
    yield from _order(found)
    for row in _rows():
        if not _can_be_asked(row):
            why = row.get("doubtful", "its recipe or length is not described here")[:50]
            what = f"{row['id']}: not asked ({why})"
            yield Row(SECTION, what, row["value_bytes"] / GIB, "GiB")


@cache
def adapter_runs() -> tuple[Answered, ...]:
    """Ask for every row that says what it takes."""
    return tuple(
        answer(row, _request(row, MODELS[_model_of(row) or ""]))
        for row in _rows()
        if _can_be_asked(row)
    )


def _rows() -> list[Mapping[str, Any]]:
    kinds = ("litgpt", "torchtune", "peft")
    return [row for row in rows("published.json") if row["class"] in kinds]


def _model_of(row: Mapping[str, Any]) -> str | None:
    return next((each for each in MODELS if row["id"].startswith(each)), None)


def _can_be_asked(row: Mapping[str, Any]) -> bool:
    return _model_of(row) is not None and "doubtful" not in row


def _ours(answered: Answered) -> int:
    assert answered.estimate is not None
    assert answered.estimate.peak is not None
    return answered.estimate.peak.allocated.expected_bytes


def _order(found: Mapping[str, list[tuple[int, int]]]) -> Iterator[Row]:
    for name, figures in found.items():
        pairs = list(combinations(figures, 2))
        right = sum((one[0] < other[0]) == (one[1] < other[1]) for one, other in pairs)
        what = f"{name}: pairs of rows in the right order, of {len(pairs)}"
        yield Row(SECTION, what, right, "pairs", f"= {len(pairs)}", right == len(pairs))


def _request(row: Mapping[str, Any], tuned: Tuned) -> EstimateRequest:
    whole = row["id"].endswith("-full")
    tuning = Finetuning(
        rank=tuned.rank,
        targets=tuned.targets,
        adapter_dropout=0.05,
        frozen_weights=_stored(row["id"]),
    )
    return EstimateRequest(
        documents=(Document(format=DocumentFormat.HF_CONFIG, text=json.dumps(tuned.config)),),
        training=Training(
            microbatch=row["model"]["microbatch"],
            seq=tuned.seq,
            accumulation=FULL_ACCUMULATION if whole else 1,
            precision=Precision.BF16,
            optimizer=Optimizer.ADAMW,
            attention=Attention.FLASH,
            loss=Loss.PLAIN,
            finetuning=None if whole else tuning,
        ),
        device=Device(name=tuned.device),
        questions=(EstimateQuestion.BRIEF,),
    )


def _stored(row_id: str) -> StoredWeights:
    if "nf4-dq" in row_id:
        return StoredWeights.NF4_DOUBLE
    nf4 = "nf4" in row_id or "qlora" in row_id
    return StoredWeights.NF4 if nf4 else StoredWeights.COMPUTE
