"""From the text of a Hugging Face ``config.json`` to an architecture.

Every key ends in one of three ways: read, known to change no byte, or listed in ``ignored``.
Every missing key whose default matters is a sentence in ``assumptions``. Knows nothing of bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from haversack.errors import InvalidRequestError, check
from haversack.strict_json import parse_object
from haversack_server.memory.architecture import Architecture
from haversack_server.memory.hf_families import FAMILIES, NESTED, Family
from haversack_server.memory.hf_reader import Reader, shown
from haversack_server.memory.weights import with_units

MAX_LAYERS = 10_000  # each layer becomes a unit of the answer
MAX_PARAMETERS = 1 << 50
TEXT_CONFIG = "text_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfig:
    """What a configuration file says, what was not used of it, and what it left unsaid."""

    architecture: Architecture
    ignored: tuple[str, ...]
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The object that describes a language model: the file itself, or its ``text_config``."""

    values: Mapping[str, Any]
    field: str
    prefix: str = ""
    ignored: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def read_hf_config(text: str, name: str = "", *, field: str = "documents[0].text") -> ReadConfig:
    """Read a model's ``config.json``; errors name ``field`` and the key at fault."""
    place = _place(parse_object(text, field=field), field)
    reader = Reader(place.values, _family(place.values, place.field), place.field)
    sizes = _sizes(reader)
    check(reader.violations)
    architecture = with_units(Architecture(name=name, **sizes))
    _check_total(architecture, field)
    return ReadConfig(
        architecture=architecture,
        ignored=(*place.ignored, *(f"{place.prefix}{key}" for key in reader.ignored())),
        assumptions=(
            *_by_class(reader),
            *place.assumptions,
            *reader.assumptions,
            *reader.family.unsaid,
            *_stored(place.values),
        ),
    )


def _place(values: Mapping[str, Any], field: str) -> _Place:
    """Find the language model of a file that describes more than one."""
    given, nested = values.get("model_type"), values.get(TEXT_CONFIG)
    if (isinstance(given, str) and given in FAMILIES) or not isinstance(nested, dict):
        return _Place(values=values, field=field)
    inner = dict(nested)
    assumptions = [f"{TEXT_CONFIG} alone is read: the language model, and no other part"]
    if "model_type" not in inner and isinstance(given, str) and given in NESTED:
        inner["model_type"] = NESTED[given]
        assumptions.append(
            f"{TEXT_CONFIG}.model_type is missing: {NESTED[given]}, the default of {given}"
        )
    for key in ("tie_word_embeddings", "vocab_size"):
        if key not in inner and key in values:
            inner[key] = values[key]
    used = {TEXT_CONFIG, "model_type", "architectures", "tie_word_embeddings", "vocab_size"}
    return _Place(
        values=inner,
        field=f"{field}.{TEXT_CONFIG}",
        prefix=f"{TEXT_CONFIG}.",
        ignored=tuple(key for key in values if key not in used),
        assumptions=tuple(assumptions),
    )


def _family(values: Mapping[str, Any], field: str) -> Family:
    """Find the family by ``model_type``, or by the class in ``architectures``."""
    supported = ", ".join(sorted(FAMILIES))
    given = values.get("model_type")
    if given is None:
        classes = {row.class_name: row for row in FAMILIES.values()}
        named = values.get("architectures")
        found = [classes[name] for name in _names(named) if name in classes]
        if found:
            return found[0]
        raise InvalidRequestError(
            f"model_type is missing; give one of {supported}", field=f"{field}.model_type"
        )
    if not isinstance(given, str) or given not in FAMILIES:
        raise InvalidRequestError(
            f"model_type {shown(given)} is not supported; use one of {supported},"
            " or give units with their parameter counts",
            field=f"{field}.model_type",
        )
    return FAMILIES[given]


def _stored(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Say that the type of stored weights is not the type of training."""
    named = [key for key in ("torch_dtype", "dtype") if isinstance(values.get(key), str)]
    return tuple(
        f"{key} {shown(values[key])}: how weights are stored; precision decides the training"
        for key in named[:1]
    )


def _by_class(reader: Reader) -> tuple[str, ...]:
    if reader.values.get("model_type") is not None:
        return ()
    row = reader.family
    return (f"model_type is missing: {row.model_type}, the family of {row.class_name}",)


def _names(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _sizes(reader: Reader) -> dict[str, Any]:
    """Read everything an Architecture is made of, or as much as can be checked."""
    reader.check_switches()
    sizes: dict[str, Any] = _common(reader)
    sizes |= {**_experts(reader), **_rates(reader), **_biases(reader), **_caps(reader)}
    sizes |= reader.family.traits
    for read in reader.family.readers:
        sizes |= read(reader, sizes)
    _check_heads(reader, sizes)
    return sizes


def _common(reader: Reader) -> dict[str, Any]:
    hidden = reader.size("hidden") or 1
    heads = reader.size("heads") or 1
    derived = f"{4 * hidden}, four times {reader.family.keys('hidden')[0]}"
    return {
        "family": reader.family.model_type,
        "hidden": hidden,
        "layers": reader.size("layers", at_most=MAX_LAYERS) or 1,
        "heads": heads,
        "kv_heads": _kv_heads(reader, heads),
        "head_dim": _head_dim(reader, hidden, heads),
        "ffn": reader.size("ffn", derived=derived) or 4 * hidden,
        "vocab": reader.size("vocab") or 1,
        "tied": reader.flag("tied"),
        "max_positions": reader.size("max_positions"),
        "activation": reader.activation(),
    }


def _kv_heads(reader: Reader, heads: int) -> int:
    if not reader.family.keys("kv_heads"):
        return heads
    return reader.size("kv_heads", derived=f"{heads}, one per attention head") or heads


def _head_dim(reader: Reader, hidden: int, heads: int) -> int:
    given = reader.size("head_dim") if reader.family.keys("head_dim") else None
    if given is None and hidden % heads and not reader.violations:
        key = reader.family.keys("heads")[0]
        reader.refuse(key, f"is {heads}, which does not divide {hidden}, the hidden size")
    return given or hidden // heads


def _check_heads(reader: Reader, sizes: Mapping[str, Any]) -> None:
    heads, kv_heads = sizes["heads"], sizes["kv_heads"]
    if not reader.violations and heads % kv_heads:
        keys = reader.family.keys("kv_heads") or ("num_kv_heads",)
        reader.refuse(keys[0], f"is {kv_heads}, which does not divide {heads} attention heads")


def _experts(reader: Reader) -> dict[str, int]:
    if "experts" not in reader.family.defaults:
        return {}
    experts = reader.size("experts") or 1
    per_token = reader.size("experts_per_token") or 1
    if per_token > experts and not reader.violations:
        key = reader.family.keys("experts_per_token")[0]
        reader.refuse(key, f"is {per_token}; at most {experts}, the number of experts, will do")
    return {"experts": experts, "experts_per_token": per_token}


def _rates(reader: Reader) -> dict[str, float]:
    nouns = ("attention_dropout", "residual_dropout", "embedding_dropout")
    return {noun: reader.rate(noun) for noun in nouns if noun in reader.family.defaults}


def _biases(reader: Reader) -> dict[str, bool]:
    result = {}
    if "attention_bias" in reader.family.defaults:
        bias = reader.flag("attention_bias")
        result = {"query_key_value_bias": bias, "output_bias": bias}
    if "ffn_bias" in reader.family.defaults:
        result["ffn_bias"] = reader.flag("ffn_bias")
    return result


def _caps(reader: Reader) -> dict[str, float | int | None]:
    defaults = reader.family.defaults
    result: dict[str, float | int | None] = {
        noun: reader.positive(noun)
        for noun in ("attention_softcap", "final_softcap")
        if noun in defaults
    }
    if "sliding_window" in defaults:
        windowed = "windowed" not in defaults or reader.flag("windowed")
        window = reader.size("sliding_window")
        result["sliding_window"] = window if windowed else None
    return result


def _check_total(architecture: Architecture, field: str) -> None:
    count = architecture.parameter_count
    if count > MAX_PARAMETERS:
        raise InvalidRequestError(
            f"the sizes multiply to {count} parameters; at most {MAX_PARAMETERS} will do",
            field=f"{field}.hidden_size",
        )
