"""Several documents as one set of settings: agreement, contradiction, and what a caller overrides.

Knows nothing of formats. A caller's own typed setting wins over every document; two documents that
say different things about one field contradict each other, and both are named.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from haversack.errors import Violation, check
from haversack_server.memory.inputs.reading import Setting, Source


@dataclass(frozen=True, slots=True)
class Placed:
    """A setting with the document that it stands in."""

    source: Source
    setting: Setting

    @property
    def place(self) -> str:
        """Where it stands, for a sentence."""
        return f"{self.source.name} ({self.setting.key})"


Merged = dict[str, Placed]


def merged(placed: Sequence[Placed], typed: dict[str, Any]) -> tuple[Merged, tuple[str, ...]]:
    """Merge settings by field; gives them with what the caller's ``typed`` fields overrode."""
    found: Merged = {}
    overridden: list[str] = []
    violations: list[Violation] = []
    for each in placed:
        field, value = each.setting.field, each.setting.value
        if field in typed:
            if typed[field] != value:
                given = f"{field} = {written(typed[field])}, as the request says"
                overridden.append(f"{given}; {each.place} says {written(value)}")
        elif field not in found:
            found[field] = each
        elif found[field].setting.value != value:
            violations.append(_contradiction(found[field], each))
    check(violations)
    return found, tuple(overridden)


def _contradiction(first: Placed, second: Placed) -> Violation:
    sentence = (
        f"{second.place} says {written(second.setting.value)} for {second.setting.field}, but "
        f"{first.place} says {written(first.setting.value)}; make them agree, or give the setting "
        "in the request"
    )
    return Violation(f"{second.source.field}.{second.setting.key}", sentence)


def written(value: Any) -> str:
    """Write a setting's value as a caller would."""
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return name
    words = getattr(value, "words", None)
    return words if isinstance(words, str) else str(value)
