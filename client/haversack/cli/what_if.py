"""Variations on one line: ``--what-if "zero=2 microbatch=4"``."""

from typing import Any

from haversack.cli.option_types import FieldType, Whole
from haversack.keywords import RunOptions
from haversack.reading import refuse

_KINDS = RunOptions.__annotations__


class WhatIfText(FieldType):
    """A variation: names of options with their values, parted by spaces or commas."""

    name = "'OPTION=VALUE ...'"

    def read(self, text: str, field: str) -> dict[str, Any]:
        """Read a variation, which is named by its text."""
        changes: dict[str, Any] = {"name": text.strip()}
        for word in text.replace(",", " ").split():
            name, equals, value = word.partition("=")
            keyword = name.removeprefix("--").replace("-", "_")
            if keyword in changes:
                refuse(f"{name} stands twice in {text!r}; keep one", field)
            changes[keyword] = _read(keyword, value, field) if equals else True
        if len(changes) == 1:
            refuse(f"{text!r} changes nothing; give such as 'zero=2 microbatch=4'", field)
        return changes


def _read(keyword: str, value: str, field: str) -> int | str:
    is_count = _KINDS.get(keyword) == int | None
    return Whole().read(value, f"{field}.{keyword}") if is_count else value
