"""Equal treatment: every block of a class by the same option, every rank alike.

There are few classes, so every choice for all of them is looked at, in the order of its extra time:
the first that fits is the best. Knows no model.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from haversack.errors import NotSupportedError
from haversack_server.memory.chain import Option

MOST_CHOICES = 4096
Peak = Callable[[tuple[int, ...]], int]


@dataclass(frozen=True, slots=True)
class Alike:
    """An option for each block, equal within a class; its extra time, its peak, and the bound.

    No choice that fits adds less than ``lower_bound``.
    """

    options: tuple[int, ...]
    extra_ns: int
    peak_bytes: int
    lower_bound: int


def choices_of(classes: Sequence[Hashable], options: Sequence[Sequence[Option]]) -> int:
    """Count the choices for all classes together."""
    return prod({key: len(rows) for key, rows in zip(classes, options, strict=True)}.values())


class EqualTreatment:
    """The choices that treat the blocks of a class alike; ``classes`` names that of each block.

    Raises ``NotSupportedError`` where there are too many to look at.
    """

    def __init__(
        self, classes: Sequence[Hashable], options: Sequence[Sequence[Option]], peak: Peak
    ) -> None:
        self._classes, self._options, self._peak = classes, options, peak
        self._counts = {key: len(rows) for key, rows in zip(classes, options, strict=True)}
        choices = choices_of(classes, options)
        if choices > MOST_CHOICES:
            raise NotSupportedError(
                f"constraints.equal_treatment: {len(self._counts)} classes of blocks have "
                f"{choices} choices, more than the {MOST_CHOICES} that are tried; name fewer blocks"
            )

    @cached_property
    def every(self) -> list[Alike]:
        """All choices, by rising extra time, then by their peak."""
        made = []
        for chosen in product(*map(range, self._counts.values())):
            by_class = dict(zip(self._counts, chosen, strict=True))
            rows = tuple(by_class[key] for key in self._classes)
            extra = sum(
                each[index].extra_ns for each, index in zip(self._options, rows, strict=True)
            )
            made.append(Alike(rows, extra, self._peak(rows), extra))
        return sorted(made, key=lambda each: (each.extra_ns, each.peak_bytes, each.options))

    def floor(self) -> Alike:
        """Give the choice with the least peak."""
        return min(self.every, key=lambda each: each.peak_bytes)

    def solve(self, budget_bytes: int) -> Alike:
        """Give the cheapest choice within a budget that is not below the floor."""
        return next(each for each in self.every if each.peak_bytes <= budget_bytes)
