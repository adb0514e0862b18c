"""From the text of a Hugging Face ``config.json`` to an architecture.

Every key ends in one of three ways: read, known to change no byte, or listed in ``ignored``.
Every missing key whose default matters is a sentence in ``assumptions``. Knows nothing of bytes.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from haversack.errors import InvalidRequestError, Violation, check
from haversack.strict_json import parse_object
from haversack_server.memory.architecture import Activation, Architecture
from haversack_server.memory.families import with_units
from haversack_server.memory.hf_families import FAMILIES, ONLY_VALUES, Family, silent_keys

MAX_SIZE = 1 << 40
MAX_LAYERS = 10_000  # each layer becomes a unit of the answer
MAX_PARAMETERS = 1 << 50

_REQUIRED = object()
# Missing without a word: no size that is kept depends on them in these families, or zero is zero.
_QUIET_DEFAULTS = frozenset(
    {"attention_bias", "ffn_bias", "sliding_window", "windowed", "max_positions"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfig:
    """What a configuration file says, what was not used of it, and what it left unsaid."""

    architecture: Architecture
    ignored: tuple[str, ...]
    assumptions: tuple[str, ...]


def read_hf_config(text: str, name: str = "", *, field: str = "documents[0].text") -> ReadConfig:
    """Read a decoder-only model's ``config.json``; errors name ``field`` and the key at fault."""
    values = parse_object(text, field=field)
    reader = _Reader(values, _family(values, field), field)
    sizes = _sizes(reader)
    check(reader.violations)
    architecture = with_units(Architecture(name=name, **sizes))
    _check_total(architecture, field)
    return ReadConfig(
        architecture=architecture,
        ignored=reader.ignored(),
        assumptions=(
            *_by_class(reader),
            *reader.assumptions,
            *reader.family.unsaid,
            *_stored(values),
        ),
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
            f"model_type {_shown(given)} is not supported; use one of {supported},"
            " or give units with their parameter counts",
            field=f"{field}.model_type",
        )
    return FAMILIES[given]


def _stored(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Say that the type of stored weights is not the type of training."""
    named = [key for key in ("torch_dtype", "dtype") if isinstance(values.get(key), str)]
    return tuple(
        f"{key} {_shown(values[key])}: how weights are stored; precision decides the training"
        for key in named[:1]
    )


def _by_class(reader: "_Reader") -> tuple[str, ...]:
    if reader.values.get("model_type") is not None:
        return ()
    row = reader.family
    return (f"model_type is missing: {row.model_type}, the family of {row.class_name}",)


def _names(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(slots=True)
class _Reader:
    """Takes our nouns out of a family's keys; collects what is wrong, missing or left over."""

    values: Mapping[str, Any]
    family: Family
    path: str
    violations: list[Violation] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)

    def size(self, noun: str, *, at_most: int = MAX_SIZE, derived: str = "") -> int | None:
        """Read a positive integer; None where it is derived, or at fault."""
        key, value = self._raw(noun, derived)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(key, f"is {_shown(value)}; give an integer")
            return None
        if not 1 <= value <= at_most:
            self.refuse(key, f"is {_shown(value)}; give an integer from 1 to {at_most}")
            return None
        return value

    def rate(self, noun: str) -> float:
        """Read a dropout probability, 0 <= p < 1; null is 0."""
        key, value = self._raw(noun)
        if value is None:
            return 0.0
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            self.refuse(key, f"is {_shown(value)}; give a probability, 0 or more and less than 1")
            return 0.0
        return float(value)

    def flag(self, noun: str) -> bool:
        """Read true or false."""
        key, value = self._raw(noun)
        if isinstance(value, bool):
            return value
        self.refuse(key, f"is {_shown(value)}; give true or false")
        return False

    def softcap(self, noun: str) -> float | None:
        """Read a positive number, or null for no soft cap."""
        key, value = self._raw(noun)
        if value is None:
            return None
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # Compared, not converted: an integer of hundreds of digits is no float.
        if not number or not 0 < value <= sys.float_info.max:
            self.refuse(key, f"is {_shown(value)}; give a positive number, or null")
            return None
        return float(value)

    def activation(self) -> Activation:
        """Read the name of the feed-forward activation."""
        key, value = self._raw("activation")
        names = {"swish": Activation.SILU} | {str(row): row for row in Activation}
        if isinstance(value, str) and value in names:
            return names[value]
        self.refuse(key, f"is {_shown(value)}; use one of {', '.join(sorted(names))}")
        return Activation.SILU

    def ignored(self) -> tuple[str, ...]:
        """Return the keys that were neither read nor are known to change nothing."""
        nouns = (*self.family.defaults, "hidden", "layers", "heads", "ffn", "vocab")
        read = {key for noun in nouns for key in self.family.keys(noun)}
        known = silent_keys(self.values) | ONLY_VALUES.keys() | read
        return tuple(key for key in self.values if key not in known)

    def check_switches(self) -> None:
        """Refuse switches whose other value changes what is kept or which weights there are."""
        for key, only in ONLY_VALUES.items():
            value = self.values.get(key)
            if value is not None and value is not only:
                self.refuse(key, f"is {_shown(value)}, which is not modelled; only false is")
        if self.values.get("quantization_config") is not None:
            sentence = "is set; quantized weights are not modelled, leave it out for whole ones"
            self.refuse("quantization_config", sentence)

    def _raw(self, noun: str, derived: str = "") -> tuple[str, Any]:
        """Return the key and its value; a null value counts as missing where there is a default."""
        keys = self.family.keys(noun)
        given = [key for key in keys if self.values.get(key) is not None]
        self._check_agreement(given)
        if given:
            return given[0], self.values[given[0]]
        key = keys[0] if keys else noun
        default = self.family.defaults.get(noun, _REQUIRED)
        if default is _REQUIRED:
            self.refuse(key, "is missing; give an integer")
            return key, None
        if key in self.values and default is not None:
            return key, self._null(noun, default)
        self._assume(noun, key, default, derived)
        return key, default

    def _null(self, noun: str, default: Any) -> Any:
        """A null key/value head count means one per head, a null soft cap or window means none."""
        if noun in {"kv_heads", "attention_softcap", "final_softcap", "sliding_window"}:
            return None
        return 0.0 if noun.endswith("dropout") else default

    def _assume(self, noun: str, key: str, default: Any, derived: str) -> None:
        if not self.family.keys(noun) or noun in _QUIET_DEFAULTS or default == 0.0:
            return
        shown = derived if default is None else f"{str(default).lower()}"
        origin = "" if default is None else f", the default of {self.family.model_type}"
        if shown:
            self.assumptions.append(f"{key} is missing: {shown}{origin}")

    def _check_agreement(self, keys: list[str]) -> None:
        for other in keys[1:]:
            if self.values[other] != self.values[keys[0]]:
                first = _shown(self.values[keys[0]])
                self.refuse(other, f"is {_shown(self.values[other])}, but {keys[0]} is {first}")

    def refuse(self, key: str, fault: str) -> None:
        """Note what is wrong with a key, as the rest of the sentence that it begins."""
        self.violations.append(Violation(f"{self.path}.{key}", f"{key} {fault}"))


def _sizes(reader: _Reader) -> dict[str, Any]:
    """Read everything an Architecture is made of, or as much as can be checked."""
    reader.check_switches()
    hidden = reader.size("hidden") or 1
    heads = reader.size("heads") or 1
    kv_heads = _kv_heads(reader, heads)
    sizes = {
        "family": reader.family.model_type,
        "hidden": hidden,
        "layers": reader.size("layers", at_most=MAX_LAYERS) or 1,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": _head_dim(reader, hidden, heads),
        "ffn": reader.size("ffn", derived=f"{4 * hidden}, four times n_embd") or 4 * hidden,
        "vocab": reader.size("vocab") or 1,
        "tied": reader.flag("tied"),
        "max_positions": reader.size("max_positions"),
        "activation": reader.activation(),
        **_experts(reader),
        **_rates(reader),
        **_biases(reader),
        **_caps(reader),
        **reader.family.traits,
    }
    _check_heads(reader, heads, kv_heads)
    return sizes


def _kv_heads(reader: _Reader, heads: int) -> int:
    if not reader.family.keys("kv_heads"):
        return heads
    return reader.size("kv_heads", derived=f"{heads}, one per attention head") or heads


def _head_dim(reader: _Reader, hidden: int, heads: int) -> int:
    given = reader.size("head_dim") if reader.family.keys("head_dim") else None
    if given is None and hidden % heads and not reader.violations:
        key = reader.family.keys("heads")[0]
        reader.refuse(key, f"is {heads}, which does not divide {hidden}, the hidden size")
    return given or hidden // heads


def _check_heads(reader: _Reader, heads: int, kv_heads: int) -> None:
    if not reader.violations and heads % kv_heads:
        key = reader.family.keys("kv_heads")[0]
        reader.refuse(key, f"is {kv_heads}, which does not divide {heads} attention heads")


def _experts(reader: _Reader) -> dict[str, int]:
    if "experts" not in reader.family.defaults:
        return {}
    experts = reader.size("experts") or 1
    per_token = reader.size("experts_per_token") or 1
    if per_token > experts and not reader.violations:
        key = reader.family.keys("experts_per_token")[0]
        reader.refuse(key, f"is {per_token}; at most {experts}, the number of experts, will do")
    return {"experts": experts, "experts_per_token": per_token}


def _rates(reader: _Reader) -> dict[str, float]:
    nouns = ("attention_dropout", "residual_dropout", "embedding_dropout")
    return {noun: reader.rate(noun) for noun in nouns if noun in reader.family.defaults}


def _biases(reader: _Reader) -> dict[str, bool]:
    result = {}
    if "attention_bias" in reader.family.defaults:
        bias = reader.flag("attention_bias")
        result = {"query_key_value_bias": bias, "output_bias": bias}
    if "ffn_bias" in reader.family.defaults:
        result["ffn_bias"] = reader.flag("ffn_bias")
    return result


def _caps(reader: _Reader) -> dict[str, float | int | None]:
    defaults = reader.family.defaults
    result: dict[str, float | int | None] = {
        noun: reader.softcap(noun)
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
