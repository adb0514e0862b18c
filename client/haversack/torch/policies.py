"""Selective policies worth trying: which results of a block's operations to save.

Matrix products and attention take most of the time of a recomputation; what lies between them
takes most of the memory. So some policies save subsets of the first. Others are minimum cuts: they
save single results, and leave out what then nobody needs.
"""

from collections.abc import Iterable, Mapping, Sequence

from haversack.torch.min_cut import Cut, hull
from haversack.torch.occurrences import Occurrence
from haversack.torch.policy import Policy
from haversack.torch.results import Result

_PRODUCTS = (
    "aten.mm.default",
    "aten.addmm.default",
    "aten.bmm.default",
    "aten.baddbmm.default",
    "aten.convolution.default",
)
_ATTENTION = "scaled_dot_product"
MOST_CUTS = 4
"""Minimum cuts tried for a block, beside the two ends of their hull; each takes one more step."""


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


def cuts_of(results: Mapping[str, Sequence[Result]]) -> list[dict[str, str]]:
    """Choose policies for blocks by what their results are made of, as ``policies_of`` gives them.

    Blocks of equal results take equal ones.
    """
    known: dict[str, list[str]] = {}
    found: list[dict[str, str]] = []
    for name, made in results.items():
        key = repr(made)
        if key not in known:
            known[key] = [_option(cut) for cut in hull(made, MOST_CUTS)]
        for place, option in enumerate(known[key]):
            if place == len(found):
                found.append({})
            found[place][name] = option
    return found


def _option(cut: Cut) -> str:
    return Policy(cut.saved, cut.left_out).option


def _attention(made: Iterable[Occurrence]) -> list[Occurrence]:
    return [each for each in made if _ATTENTION in each[0]]


def _every_second(made: Sequence[Occurrence]) -> list[Occurrence]:
    return _attention(made) + _products(made)[::2]


def _all(made: Sequence[Occurrence]) -> list[Occurrence]:
    return _attention(made) + _products(made)


def _products(made: Iterable[Occurrence]) -> list[Occurrence]:
    return [each for each in made if each[0] in _PRODUCTS]
