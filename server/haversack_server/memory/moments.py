"""What a moment of the timeline is made of: columns of bytes, the place in a step, live bytes.

Schedules write stretches, the timeline adds activations to them and makes moments. Knows no words
and no rules of any framework.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass


class Column(enum.IntEnum):
    """The terms of the timeline; the ledger puts each into words."""

    PARAMETERS = 0
    GRADIENTS = 1
    MASTER = 2
    MOMENTS = 3
    SAVED = 4
    RUNNING = 5
    LOGITS = 6
    HELD = 7
    GATHERED = 8
    PREFETCHED = 9
    UNSHARDED_GRADIENTS = 10
    REDUCE = 11
    TEMPORARIES = 12
    ALL_REDUCE = 13
    IN_FLIGHT = 14
    STAGE = 15
    WORKSPACES = 16
    BATCH = 17
    GRAPH = 18
    WEIGHT_COPIES = 19
    ON_THE_WAY = 20
    CONVERSION = 21


class Place(enum.Enum):
    """What happens at a moment; the gathers are apart, since they come before a block runs."""

    INIT = "init"
    GATHER = "gather"
    FORWARD = "forward"
    GATHER_BACK = "gather in backward"
    BACKWARD = "backward"
    REDUCE = "reduce"
    OPTIMIZER = "optimizer"
    OCCASION = "occasion"


class Part(enum.Enum):
    """Which part of a block's backward: a loss runs before its unit is gathered again."""

    ALL = "all"
    LOSS = "loss"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes by column while one thing happens to one block, without any activation.

    At a backward the block's new gradients come on top, ``gradient_each`` bytes for each element,
    in ``gradient_column``.
    """

    place: Place
    block: int
    columns: tuple[int, ...]
    total_bytes: int
    gradient_each: int = 0
    gradient_column: Column = Column.GRADIENTS
    part: Part = Part.ALL


class Live:
    """Live bytes by column while a schedule runs; what is dropped must have been added."""

    def __init__(self, start: Mapping[Column, int] | None = None) -> None:
        self._columns = [0] * len(Column)
        self._total = 0
        for column, size_bytes in (start or {}).items():
            self.add(column, size_bytes)

    def add(self, column: Column, size_bytes: int) -> None:
        """Make a buffer."""
        self._columns[column] += size_bytes
        self._total += size_bytes

    def drop(self, column: Column, size_bytes: int) -> None:
        """Free a buffer."""
        self.add(column, -size_bytes)

    def at(
        self,
        place: Place,
        block: int,
        gradient_each: int = 0,
        gradient_column: Column = Column.GRADIENTS,
        part: Part = Part.ALL,
    ) -> Stretch:
        """Take down what is live now."""
        columns = tuple(self._columns)
        return Stretch(place, block, columns, self._total, gradient_each, gradient_column, part)


def highest(*stretches: Stretch) -> Stretch:
    """Of stretches with equal activations, the one that counts; the first of equals."""
    return max(stretches, key=lambda stretch: stretch.total_bytes)
