"""Takes our nouns out of a configuration's keys; collects what is wrong, missing or left over.

A noun of a family has spellings and perhaps a default; a key that only some families have is read
by its own name. Knows how values are checked and nothing of what they are for.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from haversack.errors import Violation
from haversack_server.memory.architecture import Activation
from haversack_server.memory.hf_families.family import ONLY_VALUES, Family, silent_keys

MAX_SIZE = 1 << 40
_REQUIRED = object()
# Missing without a word: no size that is kept depends on them in these families, or zero is zero.
_QUIET_DEFAULTS = frozenset(
    {"attention_bias", "ffn_bias", "sliding_window", "windowed", "max_positions"}
)


def shown(value: Any) -> str:
    """Show a value of a file in an error, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(slots=True)
class Reader:
    """Reads one configuration for one family; ``path`` is the field that errors name."""

    values: Mapping[str, Any]
    family: Family
    path: str
    violations: list[Violation] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def size(self, noun: str, *, at_most: int = MAX_SIZE, derived: str = "") -> int | None:
        """Read a positive integer; None where it is derived, or at fault."""
        key, value = self._raw(noun, derived)
        return self._integer(key, value, 1, at_most)

    def integer(self, key: str, default: int | None, *, least: int = 1) -> int | None:
        """Read an integer of a key by its own name; null is None."""
        return self._integer(key, self._named(key, default), least, MAX_SIZE)

    def _integer(self, key: str, value: Any, least: int, most: int) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(key, f"is {shown(value)}; give an integer")
            return None
        if not least <= value <= most:
            self.refuse(key, f"is {shown(value)}; give an integer from {least} to {most}")
            return None
        return value

    def rate(self, noun: str) -> float:
        """Read a dropout probability, 0 <= p < 1; null is 0."""
        key, value = self._raw(noun)
        if value is None:
            return 0.0
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            self.refuse(key, f"is {shown(value)}; give a probability, 0 or more and less than 1")
            return 0.0
        return float(value)

    def flag(self, noun: str) -> bool:
        """Read true or false."""
        return self._boolean(*self._raw(noun))

    def switch(self, key: str, default: bool) -> bool:
        """Read true or false of a key by its own name."""
        return self._boolean(key, self._named(key, default))

    def _boolean(self, key: str, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        self.refuse(key, f"is {shown(value)}; give true or false")
        return False

    def positive(self, noun: str) -> float | None:
        """Read a positive number, or null for none."""
        key, value = self._raw(noun)
        if value is None:
            return None
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # Compared, not converted: an integer of hundreds of digits is no float.
        if not number or not 0 < value <= sys.float_info.max:
            self.refuse(key, f"is {shown(value)}; give a positive number, or null")
            return None
        return float(value)

    def fraction(self, keys: tuple[str, ...], default: float) -> float:
        """Read a share, 0 < share <= 1, under any of the keys or within the rotary parameters."""
        self.read.update(keys)
        nested = [self.values.get(key) for key in ("rope_parameters", "rope_scaling")]
        places = [self.values, *(row for row in nested if isinstance(row, Mapping))]
        for place in places:
            for key in keys:
                value = place.get(key)
                if value is not None:
                    return self._share(key, value)
        self.assumptions.append(f"{keys[0]} is missing: {default}, {self._origin()}")
        return default

    def _share(self, key: str, value: Any) -> float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value <= 1:
            self.refuse(key, f"is {shown(value)}; give a number above 0, at most 1")
            return 1.0
        return float(value)

    def indices(self, key: str) -> tuple[int, ...] | None:
        """Read a list of layers by their numbers; None where there is none."""
        value = self._named(key, None)
        if value is None:
            return None
        good = isinstance(value, list) and all(
            isinstance(row, int) and not isinstance(row, bool) and row >= 0 for row in value
        )
        if not good:
            self.refuse(key, f"is {shown(value)}; give a list of layers, each 0 or more")
            return None
        return tuple(value)

    def text(self, key: str, default: str, allowed: tuple[str, ...]) -> str:
        """Read one of the allowed words of a key by its own name."""
        value = self._named(key, default)
        if isinstance(value, str) and value in allowed:
            return value
        self.refuse(key, f"is {shown(value)}; use one of {', '.join(allowed)}")
        return default

    def activation(self) -> Activation:
        """Read the name of the feed-forward activation."""
        key, value = self._raw("activation")
        # BLOOM's own is no name that a file gives.
        known = {str(row): row for row in Activation if row is not Activation.GELU_BLOOM}
        names = {"swish": Activation.SILU} | known
        if isinstance(value, Activation) or (isinstance(value, str) and value in names):
            return value if isinstance(value, Activation) else names[value]
        self.refuse(key, f"is {shown(value)}; use one of {', '.join(sorted(names))}")
        return Activation.SILU

    def ignored(self) -> tuple[str, ...]:
        """Return the keys that were neither read nor are known to change nothing."""
        known = silent_keys(self.values) | ONLY_VALUES.keys() | self.read | self.family.silent
        return tuple(key for key in self.values if key not in known)

    def check_switches(self) -> None:
        """Refuse switches whose other value changes what is kept or which weights there are."""
        for key, only in {**ONLY_VALUES, **self.family.only}.items():
            value = self.values.get(key)
            if value is not None and value != only:
                self.refuse(key, f"is {shown(value)}, which is not modelled; only {_json(only)} is")
            if key in self.family.only:
                self.read.add(key)
        if self.values.get("quantization_config") is not None:
            sentence = "is set; quantized weights are not modelled, leave it out for whole ones"
            self.refuse("quantization_config", sentence)

    def refuse(self, key: str, fault: str) -> None:
        """Note what is wrong with a key, as the rest of the sentence that it begins."""
        self.violations.append(Violation(f"{self.path}.{key}", f"{key} {fault}"))

    def _named(self, key: str, default: Any) -> Any:
        self.read.add(key)
        if key in self.values:
            return self.values[key]
        if default:
            self.assumptions.append(f"{key} is missing: {_json(default)}, {self._origin()}")
        return default

    def _raw(self, noun: str, derived: str = "") -> tuple[str, Any]:
        """Return the key and its value; a null value counts as missing where there is a default."""
        keys = self.family.keys(noun)
        self.read.update(keys)
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
        if default is None and derived:
            self.assumptions.append(f"{key} is missing: {derived}")
        elif default is not None:
            self.assumptions.append(f"{key} is missing: {_json(default)}, {self._origin()}")

    def _origin(self) -> str:
        return f"the default of {self.family.model_type}"

    def _check_agreement(self, keys: list[str]) -> None:
        for other in keys[1:]:
            if self.values[other] != self.values[keys[0]]:
                first = shown(self.values[keys[0]])
                self.refuse(other, f"is {shown(self.values[other])}, but {keys[0]} is {first}")


def _json(value: Any) -> str:
    """Write a value as a configuration file does, but for the quotes."""
    return "null" if value is None else str(value).lower()
