"""The truth rows as requests: published and measured figures, and the answer to each of them.

Knows how rows are written down, and nothing of what an answer should be.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.estimate import Estimate, EstimateRequest
from haversack.parallelism import Parallelism
from haversack.questions import EstimateQuestion
from haversack.run import Device, Document, DocumentFormat
from haversack_server.estimate.answer import estimate

GOLDEN = Path(__file__).parents[1] / "golden"
ESTIMATE = GOLDEN / "estimate"
# Rows name the machine that they were measured on; none says which of its devices.
DEVICES = {"a100": "a100-80gb", "h100": "h100-80gb", "gb200": "gb200"}


@cache
def rows(name: str, folder: Path = ESTIMATE) -> tuple[dict[str, Any], ...]:
    """Read the rows of one golden file."""
    return tuple(json.loads((folder / name).read_text())["rows"])


@dataclass(frozen=True, slots=True)
class Answered:
    """One run with its measured bytes, and what we say of it; ``estimate`` is None if refused."""

    row: Mapping[str, Any]
    request: EstimateRequest
    estimate: Estimate | None
    refused: str = ""

    @property
    def case(self) -> str:
        """The case that the run belongs to: rows of one case are near-duplicates."""
        return str(self.row["case"])

    @property
    def known(self) -> bool:
        """Whether there is a figure: a peak that nothing that decides is missing from."""
        return self.estimate is not None and self.estimate.peak is not None

    @property
    def why_not(self) -> str:
        """Why there is no figure."""
        if self.estimate is None:
            return self.refused
        return "; ".join(self.estimate.not_modelled) or self.estimate.reason


class Error(NamedTuple):
    """How far an answer is from the measured bytes of one kind."""

    ours: int
    measured: int

    @property
    def share(self) -> float:
        """Signed, as a share of what was measured."""
        return self.ours / self.measured - 1


def answer(row: Mapping[str, Any], request: EstimateRequest) -> Answered:
    """Ask, and keep a refusal as an answer."""
    try:
        return Answered(row, request, estimate(request))
    except (InvalidRequestError, NotSupportedError) as refused:
        return Answered(row, request, None, str(refused))


@cache
def megatron() -> tuple[Answered, ...]:
    """Ask for every Megatron run."""
    return tuple(answer(row, megatron_request(row)) for row in rows("megatron.json"))


def megatron_request(row: Mapping[str, Any], *, recorded_only: bool = False) -> EstimateRequest:
    """Hand the arguments on; ranks and device are not among them."""
    text = json.dumps(row["args"]) if recorded_only else _arguments(row)
    document = Document(format=DocumentFormat.MEGATRON_ARGUMENTS, text=text, name="run.args")
    return EstimateRequest(
        documents=(document,),
        parallelism=Parallelism(world_size=row["parallelism"].get("world")),
        device=Device(name=_device(row["id"])),
        questions=(EstimateQuestion.BRIEF,),
    )


def public_arguments(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Find the arguments of a run's public file that its record lacks, if it lacks any."""
    found = (each for each in rows("megatron_more.json") if each["part"] in row["id"])
    return next(found, {})


def _arguments(row: Mapping[str, Any]) -> str:
    """Write the recorded arguments and those that the record lacks, as a user would give them."""
    more = public_arguments(row)
    given = {**row["args"], **more.get("args", {})}
    if "script" not in more:
        return json.dumps(given)
    return json.dumps({"TRAINING_SCRIPT_PATH": more["script"], "MODEL_ARGS": given})


def _device(row_id: str) -> str:
    found = re.search("|".join(DEVICES), row_id.rpartition("-")[2])
    return DEVICES[found.group()] if found else ""


def llama(model: Mapping[str, Any]) -> Document:
    """Write the sizes of a row's model as a file of transformers."""
    config = {
        "model_type": "llama",
        "hidden_size": model["hidden"],
        "num_hidden_layers": model["layers"],
        "num_attention_heads": model["heads"],
        "num_key_value_heads": model["kv_heads"],
        "intermediate_size": model["ffn"],
        "vocab_size": model["vocab"],
        "tie_word_embeddings": model["tied"],
    }
    return Document(format=DocumentFormat.HF_CONFIG, text=json.dumps(config))


def steady(answered: Answered) -> Error:
    """Compare what stays between steps, on the last rank."""
    assert answered.estimate is not None
    return Error(answered.estimate.ranks[-1].between_steps_bytes, answered.row["steady_bytes"])


def peak(answered: Answered) -> Error:
    """Compare the highest allocated bytes, on the last rank."""
    assert answered.estimate is not None
    last = answered.estimate.ranks[-1].peak
    assert last is not None
    return Error(last.allocated.expected_bytes, answered.row["peak_bytes"])


def by_case(answers: Iterator[Answered]) -> dict[str, list[Answered]]:
    """Group runs by their case."""
    grouped: dict[str, list[Answered]] = {}
    for each in answers:
        grouped.setdefault(each.case, []).append(each)
    return grouped
