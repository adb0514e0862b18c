"""The tensors that an optimizer updates on one rank, as far as its state depends on them.

FSDP2 updates a shard of each parameter; ZeRO and FSDP1 one flat tensor, of the rank or of a unit,
in which no shape is left. Knows no kind of optimizer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

Shape = tuple[int, ...]
Matrix = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """The trained tensors of one unit: elements that are updated, and the shapes they have whole.

    ``shapes`` are empty where nobody knows them, else one for each of ``elements``. ``flat`` is
    the size of the one tensor that they are part of; 0 if they are updated apart.
    ``joins_rank``: the flat tensors of all units are one.
    """

    elements: tuple[int, ...]
    shapes: tuple[Shape, ...] = ()
    of_layer: bool = False
    flat: int = 0
    joins_rank: bool = False

    @property
    def total(self) -> int:
        """Elements that are updated."""
        return self.flat or sum(self.elements)

    @property
    def outside_matrices(self) -> int:
        """Elements of what is no matrix of a layer."""
        if not self.of_layer:
            return self.total
        rows = zip(self.elements, self.shapes, strict=True)
        return min(self.total, sum(size for size, shape in rows if len(shape) < 2))

    @property
    def matrices(self) -> frozenset[Matrix]:
        """Rows and columns of the matrices of a layer, whole; of stacked experts, one's."""
        if not self.of_layer:
            return frozenset()
        return frozenset((shape[-2], shape[-1]) for shape in self.shapes if len(shape) >= 2)


def sizes_of(units: Sequence[Updated]) -> list[int]:
    """Elements of each tensor that is updated by itself."""
    joined = sum(unit.flat for unit in units if unit.joins_rank)
    sizes = [joined] if joined else []
    for unit in units:
        if not unit.flat:
            sizes += unit.elements
        elif not unit.joins_rank:
            sizes.append(unit.flat)
    return sizes


def factors(unit: Updated) -> int:
    """Count rows and columns of the tensors that have both, and the elements of the others."""
    if unit.flat or not unit.shapes:
        return unit.total
    return sum(_factors(shape) for shape in unit.shapes)


def _factors(shape: Shape) -> int:
    count = prod(shape)
    return count // shape[-1] + count // shape[-2] if len(shape) >= 2 else count
