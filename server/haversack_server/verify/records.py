"""Frozen dataclasses to JSON objects and back, for the pipes between our own processes.

Walks fields and type hints: scalars, enums, optionals, tuples, string-keyed mappings and nested
records. Fields that hold their default are left out. The wire of gRPC is another matter
(``haversack.wire``).
"""

import dataclasses
import enum
import types
import typing
from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin

Record = TypeVar("Record")


class RecordError(Exception):
    """An object does not have the form of its record."""


def to_json(record: Any) -> dict[str, Any]:
    """Spell a record as a JSON object."""
    spelled = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if value != field.default or isinstance(value, bool | enum.Enum):
            spelled[field.name] = _spell(value)
    return spelled


def from_json(kind: type[Record], spelled: Mapping[str, Any]) -> Record:
    """Read a record of ``kind``; RecordError says which field has the wrong form."""
    if not isinstance(spelled, Mapping):
        raise RecordError(f"{kind.__name__}: {spelled!r:.80} is no object")
    hints = _hints(cast(Hashable, kind))
    unknown = sorted(set(spelled) - set(hints))
    if unknown:
        raise RecordError(f"{kind.__name__} has no field {unknown[0]!r}")
    try:
        return kind(**{name: _read(hints[name], value) for name, value in spelled.items()})
    except TypeError as wrong:
        raise RecordError(f"{kind.__name__}: {wrong}") from wrong


def _spell(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return to_json(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_spell(each) for each in value]
    if isinstance(value, Mapping):
        return {name: _spell(each) for name, each in value.items()}
    return value


def _read(hint: Any, value: Any) -> Any:
    if get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = (each for each in get_args(hint) if each is not type(None))
        return None if value is None else _read(hint, value)
    if get_origin(hint) is tuple:
        return tuple(_read(get_args(hint)[0], each) for each in _of(list, value))
    if get_origin(hint) in (dict, Mapping):
        return {name: _read(get_args(hint)[1], each) for name, each in _of(dict, value).items()}
    if dataclasses.is_dataclass(hint):
        return from_json(cast(type, hint), _of(dict, value))
    return _scalar(hint, value)


def _scalar(kind: Any, value: Any) -> Any:
    if issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError as wrong:
            raise RecordError(str(wrong)) from wrong
    if kind is float and type(value) is int:
        return float(value)
    return _of(kind, value)


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise RecordError(f"{value!r:.80} is not {kind.__name__}")
    return value


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(kind)
