"""Documents as tests need them: the golden samples, and short ones written in place."""

import json
from pathlib import Path
from typing import Any

from haversack.run import Document, DocumentFormat
from haversack_server.memory.inputs.formats import ADAPTERS
from haversack_server.memory.inputs.reading import Reading, Source

GOLDEN = Path(__file__).parents[3] / "golden"
SAMPLES = {
    "zero2_defaults.json": DocumentFormat.DEEPSPEED,
    "zero3_offload_auto.json": DocumentFormat.DEEPSPEED,
    "fsdp1_full_shard.yaml": DocumentFormat.ACCELERATE,
    "fsdp2_reshard.yaml": DocumentFormat.ACCELERATE,
    "deepspeed_zero3_inline.yaml": DocumentFormat.ACCELERATE,
    "llama3_8b_2025.toml": DocumentFormat.TORCHTITAN_TOML,
    "llama3_8b_2026_saved.json": DocumentFormat.TORCHTITAN_JSON,
    "gpt_7b_tp2_pp1.args": DocumentFormat.MEGATRON_ARGUMENTS,
    "gpt_7b_tp2_pp1.yaml": DocumentFormat.MEGATRON_ARGUMENTS,
    "hf_training_args.json": DocumentFormat.HF_TRAINING_ARGUMENTS,
    "llamafactory_sft.yaml": DocumentFormat.HF_TRAINING_ARGUMENTS,
}


def sample(name: str) -> Document:
    """One of the golden samples."""
    text = (GOLDEN / "inputs" / name).read_text(encoding="utf-8")
    return Document(format=SAMPLES[name], name=name, text=text)


def model(name: str = "llama3_8b") -> Document:
    """The configuration of a model."""
    text = (GOLDEN / "hf" / f"{name}.json").read_text(encoding="utf-8")
    return Document(format=DocumentFormat.HF_CONFIG, name="config.json", text=text)


def written(kind: DocumentFormat, values: Any, name: str = "file") -> Document:
    """A document of values, as JSON (which is YAML too) or as the text that they are."""
    text = values if isinstance(values, str) else json.dumps(values)
    return Document(format=kind, name=name, text=text)


def read(document: Document) -> Reading:
    """What the adapter of its format says of a document."""
    source = Source(document.name, "documents[0].text")
    return ADAPTERS[document.format](document.text, source)


def settings(document: Document) -> dict[str, Any]:
    """The settings of a document by their field."""
    return {each.field: each.value for each in read(document).settings}
