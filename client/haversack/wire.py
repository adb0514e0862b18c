"""Nouns as messages, and back: one codec that walks fields by their names.

A noun's type hints say how each of its fields travels:

    int, str, bool, float   a scalar               X | None        absent where None
    an IntEnum              its number             tuple[X, ...]   repeated
    a noun                  a message              Mapping[K, V]   a map of scalars

Every noun class is compiled once, to one closure per field and direction; a column of integers
moves as a whole. Knows which noun is which top-level message, and no field by name: whether names
and types agree is for ``tests/unit/test_wire_names.py`` to prove.
"""

import dataclasses
import enum
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

from haversack.errors import InvalidRequestError, Violation, check
from haversack.estimate import Estimate, EstimateRequest
from haversack.plan import Plan, PlanRequest
from haversack.profile import Profile
from haversack.v1 import (
    devices_pb2,
    estimate_pb2,
    jobs_pb2,
    plan_pb2,
    profile_pb2,
    verify_pb2,
)
from haversack.verify import (
    CancelVerifyRequest,
    CancelVerifyResponse,
    ListWorkloadsRequest,
    ListWorkloadsResponse,
    VerifyEvent,
    VerifyReport,
    VerifyRequest,
)
from haversack.verify_devices import ListVerifyDevicesRequest, ListVerifyDevicesResponse
from haversack.verify_jobs import (
    GetVerifyJobRequest,
    GetVerifyJobResponse,
    ListVerifyJobsRequest,
    ListVerifyJobsResponse,
    VerifyJob,
)

Noun = TypeVar("Noun")
AnyMessage = TypeVar("AnyMessage", bound=Message)
Write = Callable[[Any, Any], None]  # (message, value): sets one field
Read = Callable[[Any], Any]  # (message): gives one field's value

MESSAGES: Mapping[type, type[Message]] = {
    EstimateRequest: estimate_pb2.EstimateRequest,
    Estimate: estimate_pb2.EstimateResponse,
    PlanRequest: plan_pb2.PlanRequest,
    Plan: plan_pb2.PlanResponse,
    Profile: profile_pb2.Profile,
    VerifyRequest: verify_pb2.VerifyRequest,
    VerifyEvent: verify_pb2.VerifyResponse,
    VerifyReport: verify_pb2.VerifyReport,
    CancelVerifyRequest: verify_pb2.CancelVerifyRequest,
    CancelVerifyResponse: verify_pb2.CancelVerifyResponse,
    GetVerifyJobRequest: jobs_pb2.GetVerifyJobRequest,
    GetVerifyJobResponse: jobs_pb2.GetVerifyJobResponse,
    VerifyJob: jobs_pb2.VerifyJob,
    ListVerifyJobsRequest: jobs_pb2.ListVerifyJobsRequest,
    ListVerifyJobsResponse: jobs_pb2.ListVerifyJobsResponse,
    ListVerifyDevicesRequest: devices_pb2.ListVerifyDevicesRequest,
    ListVerifyDevicesResponse: devices_pb2.ListVerifyDevicesResponse,
    ListWorkloadsRequest: verify_pb2.ListWorkloadsRequest,
    ListWorkloadsResponse: verify_pb2.ListWorkloadsResponse,
}


def message_of(noun: object) -> Message:
    """Write a top-level noun as the message that travels for it."""
    return to_message(noun, MESSAGES[type(noun)]())


def to_message(noun: object, message: AnyMessage) -> AnyMessage:
    """Fill an empty message from a noun, and give it back.

    Raises InvalidRequestError, naming every field whose value its type does not take.
    """
    found: list[Violation] = []
    for name, write, _ in _FIELDS[type(noun)]:
        value = getattr(noun, name)
        try:
            write(message, value)
        except InvalidRequestError as wrong:
            found += wrong.violations
        except (TypeError, ValueError) as wrong:
            found.append(Violation(name, f"{reprlib.repr(value)} will not do: {wrong}"))
    check(found)
    return message


def from_message(noun_class: type[Noun], message: Message) -> Noun:
    """Read a message as a noun.

    Raises InvalidRequestError with the violations of all nested nouns together, each under its
    path from this noun.
    """
    values: dict[str, Any] = {}
    found: list[Violation] = []
    for name, _, read in _FIELDS[noun_class]:
        try:
            values[name] = read(message)
        except InvalidRequestError as wrong:
            found += wrong.violations
    check(found)
    return noun_class(**values)


class _Field(NamedTuple):
    name: str
    write: Write
    read: Read


class _Compiled(dict[type, tuple[_Field, ...]]):
    def __missing__(self, noun_class: type) -> tuple[_Field, ...]:
        if not dataclasses.is_dataclass(noun_class):
            raise TypeError(f"{noun_class.__name__} is not a noun")
        hints = typing.get_type_hints(noun_class)
        fields = dataclasses.fields(noun_class)
        self[noun_class] = tuple(_compiled(field, hints[field.name]) for field in fields)
        return self[noun_class]


_FIELDS = _Compiled()


def _compiled(field: dataclasses.Field[Any], hint: Any) -> _Field:
    name, origin = field.name, typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (each for each in typing.get_args(hint) if each is not types.NoneType)
        return _optional(name, inner)
    if origin is tuple:
        return _repeated(name, typing.get_args(hint)[0])
    if origin is Mapping:
        return _Field(name, *_map(name))
    if dataclasses.is_dataclass(hint):
        return _nested(name, hint, field.default)
    return _Field(name, *_scalar(name, hint))


def _scalar(name: str, kind: type) -> tuple[Write, Read]:
    def write(message: Any, value: Any) -> None:
        setattr(message, name, value)

    def read(message: Any) -> Any:
        return getattr(message, name)

    def read_enum(message: Any) -> Any:
        return _member(name, kind, getattr(message, name))

    return write, read_enum if issubclass(kind, enum.IntEnum) else read


def _optional(name: str, kind: type) -> _Field:
    write_present, read_present = _message(name, kind)
    if not dataclasses.is_dataclass(kind):
        write_present, read_present = _scalar(name, kind)

    def write(message: Any, value: Any) -> None:
        if value is not None:
            write_present(message, value)

    def read(message: Any) -> Any:
        return read_present(message) if message.HasField(name) else None

    return _Field(name, write, read)


def _nested(name: str, kind: Any, default: Any) -> _Field:
    """A noun that is never None: its default is written, and read, as an absent message."""
    write_present, read_present = _message(name, kind)

    def write(message: Any, value: Any) -> None:
        if value != default:
            write_present(message, value)

    def read(message: Any) -> Any:
        has_default = default is not dataclasses.MISSING
        return default if has_default and not message.HasField(name) else read_present(message)

    return _Field(name, write, read)


def _message(name: str, kind: type) -> tuple[Write, Read]:
    def write(message: Any, value: Any) -> None:
        inner = getattr(message, name)
        inner.SetInParent()
        _placed(name, to_message, value, inner)

    def read(message: Any) -> Any:
        return _placed(name, from_message, kind, getattr(message, name))

    return write, read


def _repeated(name: str, kind: type) -> _Field:
    if dataclasses.is_dataclass(kind):
        return _Field(name, *_repeated_messages(name, kind))

    def write(message: Any, values: Iterable[Any]) -> None:
        getattr(message, name).extend(values)

    def read(message: Any) -> Any:
        return tuple(getattr(message, name))

    def read_enums(message: Any) -> Any:
        numbers = getattr(message, name)
        return tuple(_member(f"{name}[{at}]", kind, number) for at, number in enumerate(numbers))

    return _Field(name, write, read_enums if issubclass(kind, enum.IntEnum) else read)


def _repeated_messages(name: str, kind: type) -> tuple[Write, Read]:
    def write(message: Any, values: Iterable[Any]) -> None:
        add = getattr(message, name).add
        for at, value in enumerate(values):
            _placed(f"{name}[{at}]", to_message, value, add())

    def read(message: Any) -> Any:
        nouns: list[Any] = []
        found: list[Violation] = []
        for at, item in enumerate(getattr(message, name)):
            try:
                nouns.append(_placed(f"{name}[{at}]", from_message, kind, item))
            except InvalidRequestError as wrong:
                found += wrong.violations
        check(found)
        return tuple(nouns)

    return write, read


def _map(name: str) -> tuple[Write, Read]:
    def write(message: Any, value: Mapping[Any, Any]) -> None:
        getattr(message, name).update(value)

    def read(message: Any) -> Any:
        return dict(getattr(message, name))

    return write, read


def _member(path: str, kind: Any, number: int) -> Any:
    try:
        return kind(number)
    except ValueError:
        known = ", ".join(f"{each.value} {each.name}" for each in kind)
        sentence = f"{number} is no {kind.__name__} that this version knows; use one of {known}"
        raise InvalidRequestError(sentence, field=path) from None


def _placed(place: str, convert: Callable[..., Any], *arguments: Any) -> Any:
    """Convert what lies at ``place``; violations are named from the noun around it.

    Nouns that have one place in a request spell it in full already; those keep their path.
    """
    try:
        return convert(*arguments)
    except InvalidRequestError as wrong:
        raise InvalidRequestError(
            violations=[
                Violation(_path(place, each.field), each.description) for each in wrong.violations
            ]
        ) from None


def _path(place: str, field: str) -> str:
    if field == place or field.startswith((f"{place}.", f"{place}[")):
        return field
    return f"{place}.{field}" if field else place
