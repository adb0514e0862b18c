"""Which format a text is of, told from its content: the keys that no other format has.

Looks at keys alone; what they mean, and whether the text is right, the server says. YAML is looked
over line by line, so that the client needs no parser for it.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from haversack.reading import refuse, shown
from haversack.run import DocumentFormat

# Names by which a caller says a format, in front of a file: "deepspeed:ds.json".
NAMES: Mapping[str, tuple[DocumentFormat, ...]] = {
    "hf-config": (DocumentFormat.HF_CONFIG,),
    "deepspeed": (DocumentFormat.DEEPSPEED,),
    "accelerate": (DocumentFormat.ACCELERATE,),
    "torchtitan": (DocumentFormat.TORCHTITAN_TOML, DocumentFormat.TORCHTITAN_JSON),
    "megatron": (DocumentFormat.MEGATRON_ARGUMENTS,),
    "training-arguments": (DocumentFormat.HF_TRAINING_ARGUMENTS,),
}

# Top-level keys that tell a format; dashes for underscores in arguments.
_TELLING = {
    DocumentFormat.HF_CONFIG: {"model_type", "architectures"},
    DocumentFormat.DEEPSPEED: {
        "zero_optimization",
        "train_micro_batch_size_per_gpu",
        "train_batch_size",
    },
    DocumentFormat.ACCELERATE: {
        "distributed_type",
        "compute_environment",
        "num_machines",
        "deepspeed_config",
        "machine_rank",
    },
    DocumentFormat.HF_TRAINING_ARGUMENTS: {
        "per_device_train_batch_size",
        "per_gpu_train_batch_size",
        "num_train_epochs",
        "gradient_checkpointing",
        "output_dir",
        "micro_batch_size",
        "cutoff_len",
        "finetuning_type",
        "base_model",
        "model_name_or_path",
    },
    DocumentFormat.MEGATRON_ARGUMENTS: {
        "MODEL_ARGS",
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "num_attention_heads",
        "num_layers",
        "micro_batch_size",
        "global_batch_size",
        "language_model",
        "model_parallel",
    },
    DocumentFormat.TORCHTITAN_JSON: {"parallelism", "activation_checkpoint", "training"},
}
_YAML_KEY = re.compile(r"^[\"']?(-{0,2}[A-Za-z_][\w.-]*)[\"']?\s*:(?:\s|$)", re.MULTILINE)
_OPTION = re.compile(r"(?:^|\s)--([A-Za-z][\w-]*)")
_TOML_TABLE = re.compile(r"^\s*\[[\w.\"' -]+\]\s*(#.*)?$", re.MULTILINE)


def detected(text: str, name: str, field: str) -> DocumentFormat:
    """Tell the format of a text; one that cannot be told is refused with the names that can."""
    found = told(text)
    if found is None:
        refuse(
            f"{shown(name)}: its keys do not tell its format; say it in front, such as "
            f"deepspeed:{shown(name)}; the formats are {', '.join(NAMES)}",
            field,
        )
    return found


def told(text: str) -> DocumentFormat | None:
    """Tell the format of a text by its keys; None where they do not."""
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith("{"):
        return _of_keys(_json_keys(start))
    if _TOML_TABLE.search(text) and _is_toml(text):
        return DocumentFormat.TORCHTITAN_TOML
    keys = _YAML_KEY.findall(text)
    return _of_keys(keys or _OPTION.findall(text))


def named(word: str, text: str, field: str) -> DocumentFormat:
    """Take a format by its name; torchtitan has two, which the text tells apart."""
    formats = NAMES.get(word.strip().lower())
    if formats is None:
        refuse(f"{shown(word)} is no format; use one of {', '.join(NAMES)}", field)
    is_json = text.lstrip("\ufeff \t\r\n").startswith("{")
    return formats[-1] if is_json else formats[0]


def _of_keys(keys: Iterable[str]) -> DocumentFormat | None:
    """Choose the format with the most telling keys, if one has; Megatron's may have dashes."""
    plain = {key if key.isupper() else key.lstrip("-").replace("-", "_") for key in keys}
    scores = {kind: len(plain & telling) for kind, telling in _TELLING.items()}
    best = max(scores.values())
    found = [kind for kind, score in scores.items() if score == best]
    if best and DocumentFormat.HF_CONFIG in found and "model_type" in plain:
        return DocumentFormat.HF_CONFIG
    return found[0] if best and len(found) == 1 else None


def _json_keys(text: str) -> list[str]:
    """List the top-level keys; of a text that is no JSON, what looks like one."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return re.findall(r"\"([A-Za-z_][\w.-]*)\"\s*:", text)  # the server says what is wrong
    return list(value) if isinstance(value, dict) else []


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
