"""The values inside what a step takes and gives, by name: tensors, numbers, strings, and the rest.

No part may pass for equal unseen: what has no parts is spelled.
"""

import collections
import collections.abc
import enum
import logging
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy
import torch

from haversack_server.worker import reach
from haversack_server.worker.attributes import attributes_of

Values = dict[str, "torch.Tensor | str | None"]

_MOST_LEVELS = 100
_MOST_PARTS = 100_000
# What they hold is how Python makes them, and leads to all of their kind.
_IN_ORDER = (
    list,
    tuple,
    collections.deque,
    collections.abc.KeysView,
    collections.abc.ValuesView,
    collections.abc.ItemsView,
)
_UNORDERED = (set, frozenset)
_WITHOUT_PARTS = (torch.nn.Module, type, enum.Enum, types.ModuleType, logging.Filterer)


def flatten(value: Any, name: str) -> Values:
    """Name the tensors, numbers and strings inside a value; what has no parts is spelled.

    So are arrays, sets and numbers of libraries: no part of an output may pass for equal unseen.
    """
    found: Values = {}
    _flatten(value, name, found, ())
    return found


def _flatten(value: Any, name: str, found: Values, within: tuple[int, ...]) -> None:
    if isinstance(value, torch.Tensor):
        _add(found, name, value)
        return
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | bytearray):
        _add(found, name, reach.repr_of(value))
        return
    before = len(found)
    # What holds itself has its parts once.
    if id(value) not in within and len(within) < _MOST_LEVELS and before < _MOST_PARTS:
        for label, each in _children(value):
            _flatten(each, f"{name}{label}", found, (*within, id(value)))
    if len(found) == before or isinstance(value, _UNORDERED):
        _add(found, name, _unnamed(value))


def _add(found: Values, name: str, value: torch.Tensor | str) -> None:
    """Add a value; of several that have one name (1 and "1" are keys) each its own."""
    free = name
    while free in found:
        free = f"{free}'"
    found[free] = value


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f".{_key(key)}", each) for key, each in value.items())
        yield from _more(value)
    elif isinstance(value, _IN_ORDER):
        yield from ((f"[{place}]", each) for place, each in enumerate(value))
        yield from _more(value)
    elif isinstance(value, _UNORDERED):
        # By what they are: an order by their addresses would be another one in each run.
        named = (each for each in value if not _is_scalar(each))
        members = sorted(named, key=lambda each: reach.look(each)[0])
        yield from ((f"[{place}]", each) for place, each in enumerate(members))
    elif isinstance(value, numpy.ndarray):
        yield from (("[]", each) for each in (value.flat if value.dtype.hasobject else ()))
    elif not isinstance(value, _WITHOUT_PARTS):
        yield from ((f".{key}", each) for key, each in attributes_of(value).items())


def _more(container: Any) -> Iterator[tuple[str, Any]]:
    """Name the attributes of a container that are none of its items: a model's output has both."""
    items = {id(each) for each in container.values()} if isinstance(container, Mapping) else ()
    for key, each in getattr(container, "__dict__", {}).items():
        if id(each) not in items:
            yield f".{key}", each


def _key(key: Any) -> str:
    return key if isinstance(key, str) else reach.key_of(key)


def _unnamed(value: Any) -> str:
    said, children = reach.look(value)
    listed = children if isinstance(value, _IN_ORDER) else ()
    items = [f"{label} {reach.spelled(each)}" for label, each in listed if _is_scalar(each)]
    return " ".join([said or type(value).__qualname__, *items])


def _is_scalar(value: Any) -> bool:
    return isinstance(value, reach.SCALARS)
