"""Values as people spell them, made into those of nouns: "80GiB", "adamw-foreach", {"name": "a"}.

Every spelling that means nothing is an InvalidRequestError at the field. Knows no request.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from haversack import checks, units
from haversack.errors import check
from haversack.reading import refuse

Size = int | str
Enum = TypeVar("Enum", bound=enum.IntEnum)

_LONGEST_KEY = 60  # characters of it in the path of a field
_LONGEST_FIGURE = 64  # characters; Python reads integers of up to 4,300 digits only


def size(value: Size | None, field: str) -> int | None:
    """Take bytes as a whole number or as "80GiB"."""
    if isinstance(value, str):
        if len(value) > _LONGEST_FIGURE:
            refuse(f"{value[:16]}... is too long for a number of bytes; write 80GiB", field)
        return units.parse_bytes(value, field)
    whole: int | None = checks.plain(value)
    check(checks.optional_integer(field, whole))
    return whole


def named(kind: type[Enum], value: Enum | str | None, field: str) -> Enum:
    """Take a member of an enum by its name in lower case, with dashes; None is UNSPECIFIED."""
    if value is None:
        return kind(0)
    if isinstance(value, kind):
        return value
    names = {_dashed(member.name): member for member in kind if member}
    found = names.get(_dashed(value)) if isinstance(value, str) else None
    if found is None:
        refuse(f"{checks.shortly(value)} is unknown; use one of {', '.join(names)}", field)
    return found


def names_of(kind: type[enum.IntEnum]) -> list[str]:
    """List the names that ``named`` takes."""
    return [_dashed(member.name) for member in kind if member]


def flag(value: bool, field: str) -> bool:
    """Take a yes or no; a number or a word is none."""
    if not isinstance(value, bool):
        refuse(f"{checks.shortly(value)} is neither yes nor no; give True or False", field)
    return value


def text(value: object, field: str) -> str:
    """Take a string."""
    if not isinstance(value, str):
        refuse(f"{checks.shortly(value)} ({type(value).__name__}) is not a string", field)
    return value


def sequence(value: object, field: str) -> tuple[Any, ...]:
    """Take a list, a tuple or a numpy array of one dimension as a tuple."""
    tolist = getattr(value, "tolist", None)
    listed = tolist() if tolist is not None else value
    if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Sequence):
        refuse(f"{checks.shortly(value)} is not a list", field)
    return tuple(listed)


def table(
    given: object,
    path: str,
    *,
    needed: Sequence[str] = (),
    others: Sequence[str] = (),
    example: str,
) -> dict[str, Any]:
    """Take an object whose keys are known, the needed ones there, as a dict of its own."""
    if not isinstance(given, Mapping):
        refuse(f"{checks.shortly(given)} is not an object such as {example}", path)
    known = (*needed, *others)
    for key in given:
        if key not in known:
            named = str(key)[:_LONGEST_KEY]
            refuse(f"unknown key; the keys are {', '.join(known)}", f"{path}.{named}")
    for key in needed:
        if key not in given:
            refuse(f"it is missing; {example} would do", f"{path}.{key}")
    return dict(given)


def _dashed(name: str) -> str:
    return name.strip().lower().replace("_", "-")
