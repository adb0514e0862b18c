"""Variations of a request: what a variation sets replaces the request's own, field by field."""

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from haversack.errors import InvalidRequestError, Violation
from haversack.estimate import WhatIf
from haversack.plan import PlanWhatIf
from haversack.run import Device
from haversack_server.memory.devices import named

Settings = TypeVar("Settings")
Answer = TypeVar("Answer")


def overlaid(base: Settings, over: Settings | None) -> Settings:
    """Replace what ``over`` sets."""
    if over is None:
        return base
    names = [each.name for each in fields(over)]  # type: ignore[arg-type]
    given = {name: getattr(over, name) for name in names if is_set(getattr(over, name))}
    return replace(base, **given)  # type: ignore[type-var]


def device_of(varied: WhatIf | PlanWhatIf) -> Device | None:
    """Give a variation's device with what the catalogue says of its name."""
    return None if varied.device is None else named(varied.device)[0]


def is_set(value: object) -> bool:
    """Tell whether a field is given: None, UNSPECIFIED, "" and () are not; 0 and False are."""
    if isinstance(value, enum.IntEnum):
        return value != 0
    return value is not None and value not in ("", ())


def unread_there(path: str, varied: WhatIf | PlanWhatIf, ignored: Sequence[str]) -> Iterator[str]:
    """Name what a variation itself sets in vain, of all that its answer's run ignores.

    ``path`` is the variation's, such as ``what_ifs[3]``.
    """
    given = {
        f"{noun}.{each.name}"
        for noun in ("training", "parallelism", "device")
        if (settings := getattr(varied, noun)) is not None
        for each in fields(settings)
        if is_set(getattr(settings, each.name))
    }
    for sentence in ignored:
        setting = ".".join(sentence.partition(":")[0].split(".")[:2])
        if setting in given:
            yield f"{path}.{sentence}"


def placed(path: str, answer: Callable[[], Answer]) -> Answer:
    """Answer a variation; what only it gets wrong, since the request has an answer, is named there.

    ``path`` is the variation's, such as ``what_ifs[3]``.
    """
    try:
        return answer()
    except InvalidRequestError as wrong:
        there = [Violation(f"{path}.{each.field}", each.description) for each in wrong.violations]
        raise InvalidRequestError(violations=there) from wrong
