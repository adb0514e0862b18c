"""Nouns and messages have the same fields, of the same types: what the codec takes for granted."""

import dataclasses
import enum
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from haversack import wire

SCALARS = {
    int: {FieldDescriptor.TYPE_INT64},
    bool: {FieldDescriptor.TYPE_BOOL},
    str: {FieldDescriptor.TYPE_STRING},
    float: {FieldDescriptor.TYPE_DOUBLE},
}


def unwrapped(hint: Any) -> Any:
    """The type of one value: of an optional, of an element."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return next(each for each in arguments if each is not types.NoneType)
    return arguments[0] if origin is tuple else hint


def hints_of(noun_class: type) -> dict[str, Any]:
    return typing.get_type_hints(noun_class)


def reachable(noun_class: type, descriptor: Any) -> Iterator[tuple[type, Descriptor]]:
    yield noun_class, descriptor
    for name, hint in hints_of(noun_class).items():
        if dataclasses.is_dataclass(inner := unwrapped(hint)):
            yield from reachable(
                typing.cast(type, inner), descriptor.fields_by_name[name].message_type
            )


PAIRS = dict(
    pair
    for noun_class, message_class in wire.MESSAGES.items()
    for pair in reachable(noun_class, message_class.DESCRIPTOR)
)
every_pair = pytest.mark.parametrize(
    ("noun_class", "descriptor"), PAIRS.items(), ids=[each.__name__ for each in PAIRS]
)


@every_pair
def test_a_noun_and_its_message_have_the_same_fields(
    noun_class: type, descriptor: Descriptor
) -> None:
    assert set(hints_of(noun_class)) == set(descriptor.fields_by_name)


@every_pair
def test_a_field_has_the_type_that_its_hint_says(noun_class: type, descriptor: Descriptor) -> None:
    for name, hint in hints_of(noun_class).items():
        field = descriptor.fields_by_name[name]
        kind = unwrapped(hint)
        if dataclasses.is_dataclass(kind):
            assert field.type == FieldDescriptor.TYPE_MESSAGE, name
        elif issubclass(kind, enum.IntEnum):
            assert field.type == FieldDescriptor.TYPE_ENUM, name
        else:
            assert field.type in SCALARS[kind], name


@every_pair
def test_a_field_that_may_be_none_may_be_absent_and_no_other(
    noun_class: type, descriptor: Descriptor
) -> None:
    for name, hint in hints_of(noun_class).items():
        field = descriptor.fields_by_name[name]
        is_optional = typing.get_origin(hint) in (types.UnionType, typing.Union)
        is_repeated = typing.get_origin(hint) is tuple
        assert is_repeated == (field.default_value == []), name
        if not dataclasses.is_dataclass(unwrapped(hint)):
            assert is_optional == field.has_presence, name


def test_no_noun_travels_as_a_map_yet() -> None:
    assert not any(
        typing.get_origin(hint) is Mapping for each in PAIRS for hint in hints_of(each).values()
    )


ENUMS = {
    unwrapped(hint): descriptor.fields_by_name[name].enum_type
    for noun_class, descriptor in PAIRS.items()
    for name, hint in hints_of(noun_class).items()
    if isinstance(unwrapped(hint), enum.EnumMeta)
}


@pytest.mark.parametrize(
    ("enum_class", "descriptor"), ENUMS.items(), ids=[each.__name__ for each in ENUMS]
)
def test_an_enum_is_equal_by_name_and_number(
    enum_class: type[enum.IntEnum], descriptor: EnumDescriptor
) -> None:
    zero = next(value.name for value in descriptor.values if value.number == 0)
    prefix = zero.removesuffix("UNSPECIFIED")
    ours = {each.name: each.value for each in enum_class}
    assert {prefix + name: number for name, number in ours.items()} == {
        value.name: value.number for value in descriptor.values
    }
