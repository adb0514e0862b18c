"""What is in the arguments and the results of operations."""

from collections.abc import Iterator
from typing import Any


def leaves_of(value: Any) -> Iterator[Any]:
    """Give what is in the arguments or results of an operation: lists and dicts of it at most."""
    if isinstance(value, tuple | list):
        for each in value:
            yield from leaves_of(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from leaves_of(each)
    else:
        yield value
