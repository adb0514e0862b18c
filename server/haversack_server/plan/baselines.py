"""Well-known ways to choose, beside the plan: what exactness buys, also where it buys nothing.

None of them knows a peak but greedy, which stops at the first that fits. Knows options by name, and
asks others for peaks.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from haversack.plan import Baseline
from haversack_server.memory.chain import Option

Options = Sequence[Sequence[Option]]
Peak = Callable[[tuple[int, ...]], int]
_PRODUCTS = re.compile(r"(?:mm|convolution)\S*?:([\d,]+)")


@dataclass(frozen=True, slots=True)
class Way:
    """A named choice of options, by block."""

    name: str
    options: tuple[int, ...]


def ways_of(options: Options, peak: Peak, budget_bytes: int) -> Iterator[Way]:
    """Give none, full, every k-th block, a selective policy everywhere, and greedy."""
    saved = tuple(0 for _ in options)
    full = tuple(_index(rows, "recompute") or 0 for rows in options)
    yield Way("none", saved)
    yield Way("full", full)
    open_places = [place for place, index in enumerate(full) if index]
    for step, name in ((2, "2nd"), (3, "3rd"), (4, "4th")):
        if len(open_places) >= step:
            yield Way(f"every {name} block", _only(full, open_places[::step]))
    selective = tuple(_selective(rows) for rows in options)
    if any(selective):
        yield Way("selective, as torchtitan", selective)
    yield Way("greedy", _greedy(options, full, peak, budget_bytes))


def baselines(
    options: Options, peak: Peak, budget_bytes: int, ways: Sequence[Way]
) -> tuple[Baseline, ...]:
    """Add up each way."""
    return tuple(
        baseline(
            way.name,
            peak(way.options),
            budget_bytes,
            [rows[index] for rows, index in zip(options, way.options, strict=True)],
        )
        for way in ways
    )


def baseline(name: str, peak_bytes: int, budget_bytes: int, rows: Sequence[Option]) -> Baseline:
    """Write a way with its figures."""
    return Baseline(
        name=name,
        peak_bytes=peak_bytes,
        fits=peak_bytes <= budget_bytes,
        extra_ns=sum(row.extra_ns for row in rows),
        saved_count=sum(row.name == "save" for row in rows),
    )


def _index(rows: Sequence[Option], name: str) -> int | None:
    return next((index for index, row in enumerate(rows) if row.name == name), None)


def _only(full: tuple[int, ...], places: Sequence[int]) -> tuple[int, ...]:
    return tuple(index if place in places else 0 for place, index in enumerate(full))


def _selective(rows: Sequence[Option]) -> int:
    """Find the policy that saves attention and every second product; 0 where there is none."""
    named = _index(rows, "selective")
    if named is not None:
        return named
    counts = {
        index: sum(len(each.split(",")) for each in _PRODUCTS.findall(row.name))
        for index, row in enumerate(rows)
        if row.name.startswith("selective ") and " without " not in row.name
    }
    if not any(counts.values()):
        return 0
    half = max(counts.values()) / 2
    return min(counts, key=lambda index: (abs(counts[index] - half), index))


def _greedy(
    options: Options, full: tuple[int, ...], peak: Peak, budget_bytes: int
) -> tuple[int, ...]:
    """Recompute the blocks that free most bytes for their time, as many as it takes to fit."""

    def worth(place: int) -> float:
        save, again = options[place][0], options[place][full[place]]
        return (save.retained_bytes - again.retained_bytes) / max(1, again.extra_ns)

    order = sorted((place for place, index in enumerate(full) if index), key=worth, reverse=True)
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if peak(_only(full, order[:middle])) <= budget_bytes:
            high = middle
        else:
            low = middle + 1
    return _only(full, order[:low])
