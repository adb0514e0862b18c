"""A value as the key of a cache, equal to itself alone: for what is large, and made once.

Comparing or hashing it would take longer than what the cache spares. The key keeps the value alive,
so that its identity is not given to another.
"""

from typing import Generic, TypeVar

Value = TypeVar("Value")


class Same(Generic[Value]):
    """Equal where the value is the same object."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value
