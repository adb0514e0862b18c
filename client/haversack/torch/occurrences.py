"""Operations of a block by overload and occurrence, and how they are written into options' names.

Occurrences count from 0 within one call of one block: ``aten.mm.default:0,2`` are the first and the
third product.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias

Occurrence: TypeAlias = tuple[str, int]

# No block has a billion operations, and Python reads no number of thousands of digits.
_PART = re.compile(r"([\w.]+):([0-9]{1,9}(?:,[0-9]{1,9})*)")


def next_of(counts: Counter[str], operation: Any) -> Occurrence:
    """Count an operation, and name it."""
    name = str(operation)
    counts[name] += 1
    return name, counts[name] - 1


def written(occurrences: Iterable[Occurrence]) -> list[str]:
    """Write occurrences, a word for each operation; equal ones give equal words."""
    places: dict[str, list[int]] = {}
    for operation, occurrence in sorted(occurrences):
        places.setdefault(operation, []).append(occurrence)
    return [f"{name}:{','.join(map(str, found))}" for name, found in places.items()]


def read(words: Iterable[str]) -> frozenset[Occurrence] | None:
    """Read what ``written`` writes; None if a word is nothing of the kind."""
    found: set[Occurrence] = set()
    for word in words:
        match = _PART.fullmatch(word)
        if match is None:
            return None
        found.update((match[1], int(each)) for each in match[2].split(","))
    return frozenset(found)
