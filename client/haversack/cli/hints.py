"""Which option an error is about: the flag that fills a field, of those that were typed if can be.

Knows options and the paths of fields, and nothing of what would do.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haversack.cli.option_types import FieldOption
from haversack.errors import DeadlineError, HaversackError, InvalidRequestError, UnavailableError
from haversack.reading import shown

MOST_FAULTS = 5  # of an error that are told, each in a line with the option that it came from

_PLACED = re.compile(r"([a-z_]+(?:\[\d+\]|\.[a-z_]+)*): ")
# What would do is a longer time, or another server.
_OF_A_KIND: dict[type[HaversackError], str] = {DeadlineError: "timeout", UnavailableError: "server"}


@dataclass(frozen=True, slots=True)
class Hints:
    """Names options, which know their fields; ``given`` has the values that were typed."""

    options: Sequence[FieldOption]
    given: Mapping[str, Any]

    def of_error(self, error: HaversackError) -> list[str]:
        """Give a hint for each fault that is told; one may be empty."""
        if isinstance(error, InvalidRequestError):
            return [self.of_field(fault.field) for fault in error.violations[:MOST_FAULTS]]
        named = _OF_A_KIND.get(type(error))
        placed = _PLACED.match(str(error))
        field = named or (placed[1] if placed else "")
        return [self.of_field(field)] if field else []

    def of_field(self, field: str) -> str:
        """Name the flag that fills a field, with the file that it names."""
        if field == "subject":
            return "give " + ", ".join(option.opts[0] for option in self._subjects())
        several = self._several_subjects(field)
        if several:
            return several
        if field == "documents" and not self.given.get("model"):
            return "--model"
        if field.startswith("what_ifs[") and self.given.get("knobs"):
            return _of_variation(field, self.given)
        if field.startswith("documents["):
            return _of_document(field, self.given) or self._filling(field)
        return self._filling(field) or self._below(field)

    def _filling(self, field: str) -> str:
        """Name the option that fills the field most closely; of several, one that was typed."""
        fitting = [
            (len(place), self._is_given(option), option.opts[0])
            for option in self.options
            for place in option.fields
            if _lies_in(field, place)
        ]
        return max(fitting)[2] if fitting else ""

    def _below(self, field: str) -> str:
        """Name the options that were typed and fill a part of the field, such as of parallelism."""
        flags = [
            option.opts[0]
            for option in self.options
            if self._is_given(option) and any(_lies_in(place, field) for place in option.fields)
        ]
        return ", ".join(flags)

    def _subjects(self) -> list[FieldOption]:
        return [
            option
            for option in self.options
            if option.section == "Model" or "workload" in option.fields
        ]

    def _several_subjects(self, field: str) -> str:
        """Name what was typed where a request has more than one subject, of which this is one."""
        # A file of settings alone stands beside any subject.
        typed = [
            option
            for option in self._subjects()
            if self._is_given(option) and option.opts[0] != "--config"
        ]
        fields = {option.fields for option in typed}
        named = any(field in option.fields for option in typed)
        return ", ".join(option.opts[0] for option in typed) if named and len(fields) > 1 else ""

    def _is_given(self, option: FieldOption) -> bool:
        value = self.given.get(option.name or "")
        # By identity: 0 was typed. An empty text is the default of some.
        left_out = value is None or value is False or value == () or value == option.default
        return not left_out


def _of_document(field: str, given: Mapping[str, Any]) -> str:
    """Name the option, and the file, that a document came from: the model's stands first."""
    index = int(field.removeprefix("documents[").partition("]")[0])
    files = [("--model", given["model"])] if given.get("model") else []
    files += [("--config", config) for config in given.get("configs") or ()]
    if index < len(files):
        return f"{files[index][0]} {shown(files[index][1])}"
    return "--launch" if given.get("launch") else ""


def _of_variation(field: str, given: Mapping[str, Any]) -> str:
    """Name the option that a variation came from: those of knobs stand first."""
    index = int(field.removeprefix("what_ifs[").partition("]")[0])
    return "--knob" if index < len(given["knobs"]) else "--what-if"


def _lies_in(field: str, place: str) -> bool:
    return field == place or field.startswith((f"{place}.", f"{place}["))
