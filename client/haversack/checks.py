"""Rules that nouns check in their constructors: integers that are integers, and inside their range.

A noun collects every broken rule and raises them at once, so a caller mends them in one go.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from haversack.errors import InvalidRequestError, Violation
from haversack.units import INT64_MAX

LONGEST_SHOWN = 40  # characters of a value in a sentence


def integer(field: str, value: object, *, least: int = 0, most: int = INT64_MAX) -> list[Violation]:
    """Check an integer between ``least`` and ``most``; a bool or a float is none."""
    if type(value) is not int:
        return [Violation(field, f"{_spelled(value)} is not an integer; give a whole number")]
    if value < least:
        return [Violation(field, f"{shortly(value)} is too small; {_at_least(least)} would do")]
    if value > most:
        return [Violation(field, f"{shortly(value)} is too large; at most {most} would do")]
    return []


def optional_integer(
    field: str, value: object, *, least: int = 0, most: int = INT64_MAX
) -> list[Violation]:
    """Check as ``integer`` does, where None stands for "not given"."""
    return [] if value is None else integer(field, value, least=least, most=most)


def column(field: str, values: Sequence[object], *, least: int = 0) -> list[Violation]:
    """Check every integer of a column, and name the places of those that will not do.

    One pass over types and extremes settles a right column; only a wrong one is walked.
    """
    if set(map(type, values)) <= {int}:
        numbers: Sequence[Any] = values
        if not numbers or (min(numbers) >= least and max(numbers) <= INT64_MAX):
            return []
    return [
        violation
        for index, value in enumerate(values)
        for violation in integer(f"{field}[{index}]", value, least=least)
    ]


def equal_lengths(field: str, columns: dict[str, int]) -> list[Violation]:
    """Check that columns of one table are equally long."""
    if len(set(columns.values())) <= 1:
        return []
    lengths = ", ".join(f"{name} has {length}" for name, length in columns.items())
    return [Violation(field, f"columns must be equally long: {lengths}")]


def exactly_one(given: dict[str, bool]) -> list[Violation]:
    """Check that one subject is set, and no more."""
    named = [name for name, is_set in given.items() if is_set]
    if len(named) == 1:
        return []
    if not named:
        return [Violation("subject", f"no subject is set; set one of {', '.join(given)}")]
    return [Violation(named[1], f"a request has one subject, not {' and '.join(named)}")]


def address(field: str, value: str) -> list[Violation]:
    """Check where a server is said to be: gRPC takes HOST:PORT or unix:PATH, and no web address."""
    if not value:
        sentence = "the address is empty; give HOST:PORT, or none for a server in this process"
        return [Violation(field, sentence)]
    scheme, found, rest = value.partition("://")
    if not found or scheme in ("dns", "unix"):
        return []
    place = rest.split("/")[0] or "localhost:50051"
    sentence = (
        f"{shortly(value)} is a web address, and the server speaks gRPC; give {shortly(place)}"
    )
    return [Violation(field, sentence)]


def plain(value: Any) -> Any:
    """Take what stands for a whole number, such as numpy's scalars, as Python's own integer.

    Everything else passes as it is, for ``integer`` to refuse: floats, bools, members of enums.
    """
    if isinstance(value, int) or not hasattr(value, "__index__"):
        return value
    try:
        return operator.index(value)
    except TypeError:  # an array of several, a scalar that is no whole number
        return value


def column_of_ints(values: Iterable[Any], field: str = "") -> tuple[Any, ...]:
    """Hold a column as a tuple; numpy's integers become Python's."""
    tolist = getattr(values, "tolist", None)
    listed = tolist() if tolist is not None else values
    if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Iterable):
        raise InvalidRequestError(f"{shortly(values)} is not a list of whole numbers", field=field)
    held = tuple(listed)
    return held if set(map(type, held)) <= {int} else tuple(map(plain, held))


def shortly(value: object) -> str:
    """Write a value for a sentence, of any length or nesting, in few characters."""
    if isinstance(value, str | bytes):  # the whole of a long text is not even written
        value = value[: LONGEST_SHOWN + 1]
    try:
        written = repr(value)
    except ValueError:
        return "a number of thousands of digits"  # more than Python writes
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"
    if "\n" in written:  # of an object, such as a module's, whose every line it would be
        written = " ".join(written.split())
    return written if len(written) <= LONGEST_SHOWN else written[:LONGEST_SHOWN] + "..."


def _spelled(value: object) -> str:
    return f"{shortly(value)} ({type(value).__name__})"


def _at_least(least: int) -> str:
    return {0: "0 or more", 1: "1 or more"}.get(least, f"at least {least}")
