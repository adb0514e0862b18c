"""Measured figures on one line: ``--measured "step 2 backward=71.2GiB"``."""

from collections.abc import Sequence
from typing import Any

import click

from haversack.checks import shortly
from haversack.cli.option_types import Whole
from haversack.reading import refuse
from haversack.spelling import size

METAVAR = "PHASE=BYTES"
_WOULD_DO = "give such as 'step 2 backward=71.2GiB', peak=71.2GiB, reserved=75GiB or peak@3=70GiB"


def read_all(
    ctx: click.Context, option: click.Parameter, texts: Sequence[str]
) -> tuple[dict[str, Any], ...]:
    """Read measurements; one that will not do is named by its place."""
    return tuple(_measurement(text, f"measurements[{place}]") for place, text in enumerate(texts))


def _measurement(text: str, field: str) -> dict[str, Any]:
    """Read a phase, ``peak`` or ``reserved``, with its rank behind an @, and the bytes."""
    where, equals, figure = text.partition("=")
    phase, at, rank = where.strip().partition("@")
    if not equals or not phase:
        refuse(f"{shortly(text)} is no measurement; {_WOULD_DO}", field)
    kind = "reserved_bytes" if phase == "reserved" else "allocated_bytes"
    measured: dict[str, Any] = {kind: size(figure.strip(), f"{field}.{kind}")}
    if phase not in ("peak", "reserved"):
        measured["phase"] = phase
    if at:
        measured["rank"] = Whole().read(rank, f"{field}.rank")
    return measured
