"""Long lists made short: layers.0, layers.1, layers.2 is layers.0-2."""

import re
from collections.abc import Iterable, Sequence

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)")


def compressed(names: Iterable[str]) -> list[str]:
    """Join runs of names that differ by a rising number only, in the order they stand."""
    runs: list[tuple[str, str]] = []
    for name in names:
        if runs and _follows(runs[-1][1], name):
            runs[-1] = (runs[-1][0], name)
        else:
            runs.append((name, name))
    return [_written(first, last) for first, last in runs]


def indices(numbers: Sequence[int]) -> str:
    """Write rising indices: 1, 2, 3, 7 is "1-3, 7"."""
    return ", ".join(compressed(str(number) for number in numbers))


def _follows(before: str, name: str) -> bool:
    old, new = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(name)
    if old is None or new is None:
        return False
    return (old[1], int(old[2]) + 1, old[3]) == (new[1], int(new[2]), new[3])


def _written(first: str, last: str) -> str:
    end = _NUMBERED.fullmatch(last)
    if first == last or end is None:
        return first
    return f"{first.removesuffix(end[3])}-{end[2]}{end[3]}"
