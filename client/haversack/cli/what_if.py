"""Variations on one line: ``--what-if "zero=2 microbatch=4"``."""

from collections.abc import Sequence
from typing import Any

import click

from haversack.checks import shortly
from haversack.cli.option_types import Whole, YesNoOrWhole
from haversack.keywords import RunOptions
from haversack.reading import refuse

_KINDS = RunOptions.__annotations__


METAVAR = "'OPTION=VALUE ...'"


def read_all(
    ctx: click.Context, option: click.Parameter, texts: Sequence[str]
) -> tuple[dict[str, Any], ...]:
    """Read variations; one that will not do is named by its place."""
    return tuple(_variation(text, f"what_ifs[{place}]") for place, text in enumerate(texts))


def read_knobs(
    ctx: click.Context, option: click.Parameter, texts: Sequence[str]
) -> tuple[dict[str, Any], ...]:
    """Read settings with their values, each a variation; a wrong one is named by its place."""
    read = (_values(text, f"knobs[{place}]") for place, text in enumerate(texts))
    return tuple(each for values in read for each in values)


def _values(text: str, field: str) -> list[dict[str, Any]]:
    name, equals, values = text.strip().partition("=")
    if not equals:
        return [_variation(name, field)]
    listed = [value for value in values.split(",") if value.strip()]
    if not listed or " " in text.strip():
        refuse(f"{shortly(text)} is no setting with values; give such as 'zero=2,3'", field)
    return [_variation(f"{name}={value}", field) for value in listed]


def _variation(text: str, field: str) -> dict[str, Any]:
    """Read names of options with their values, parted by spaces or commas."""
    changes: dict[str, Any] = {"name": text.strip()}
    for word in text.replace(",", " ").split():
        name, equals, value = word.partition("=")
        keyword = name.removeprefix("--").replace("-", "_")
        if keyword in changes:
            refuse(f"{shortly(name)} stands twice in {shortly(text)}; keep one", field)
        changes[keyword] = _read(keyword, value, field) if equals else True
    if len(changes) == 1:
        refuse(f"{shortly(text)} changes nothing; give such as 'zero=2 microbatch=4'", field)
    return changes


def _read(keyword: str, value: str, field: str) -> Any:
    kind = _KINDS.get(keyword)
    if kind == bool | int | None:
        return YesNoOrWhole().read(value, f"{field}.{keyword}")
    return Whole().read(value, f"{field}.{keyword}") if kind == int | None else value
