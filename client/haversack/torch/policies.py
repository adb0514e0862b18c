"""Selective policies worth trying: which results of a block's operations to save.

Matrix products and attention take most of the time of a recomputation; what lies between them
takes most of the memory. So the policies save subsets of the first.
"""

from collections.abc import Iterable, Mapping, Sequence

from haversack.torch.policy import Policy

Occurrence = tuple[str, int]
_PRODUCTS = (
    "aten.mm.default",
    "aten.addmm.default",
    "aten.bmm.default",
    "aten.baddbmm.default",
    "aten.convolution.default",
)
_ATTENTION = "scaled_dot_product"


def policies_of(
    operations: Mapping[str, Sequence[Occurrence]],
) -> list[dict[str, str]]:
    """Choose policies for blocks by their operations: for each policy, the option by block.

    First attention alone, then with every second product, then with all of them. A block without
    such operations takes none.
    """
    found = []
    for kept in (_attention, _every_second, _all):
        options = {name: frozenset(kept(made)) for name, made in operations.items()}
        named = {name: Policy(saved).option for name, saved in options.items() if saved}
        if named and named not in found:
            found.append(named)
    return found


def _attention(made: Iterable[Occurrence]) -> list[Occurrence]:
    return [each for each in made if _ATTENTION in each[0]]


def _every_second(made: Sequence[Occurrence]) -> list[Occurrence]:
    return _attention(made) + _products(made)[::2]


def _all(made: Sequence[Occurrence]) -> list[Occurrence]:
    return _attention(made) + _products(made)


def _products(made: Iterable[Occurrence]) -> list[Occurrence]:
    return [each for each in made if each[0] in _PRODUCTS]
