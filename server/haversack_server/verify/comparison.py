"""From compared values to the value of a facet: bitwise, then the noise floor, then the tolerance.

The worker compares tensors and sends rows; what they mean together is decided here, without torch.
"""

import enum
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from haversack.verify import Facet, FacetResult, FacetValue
from haversack_server.verify.hints import fix_hint

MOST_NAMES = 20
NOISE_FACTOR = 2.0  # two plain runs are one sample of the noise; twice its size is still noise


class Closeness(enum.IntEnum):
    """How near a value of one run is to the same value of the plain run."""

    EQUAL = 0
    CLOSE = 1
    DIFFERENT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One value that is not equal to the plain run's bit for bit.

    ``max_difference`` is None where the two have no difference: another shape, a missing tensor.
    ``is_rounding`` marks a close one that is outside the tolerance of its dtype, and near enough
    only if nothing but rounding can differ. ``has_no_direction`` marks a gradient whose difference
    looks like rounding that has grown: whether it has, plain runs can show.
    """

    facet: Facet
    name: str
    closeness: Closeness
    max_difference: float | None = None
    note: str = ""
    is_rounding: bool = False
    has_no_direction: bool = False


_ORDER = (
    FacetValue.EQUAL_BITWISE,
    FacetValue.WITHIN_NOISE,
    FacetValue.WITHIN_TOLERANCE,
    FacetValue.DIFFERENT,
    FacetValue.INCONCLUSIVE,
)
OF_RANK = re.compile(r"^rank \d+ ")  # what names of a rank begin with
FIRST_STEP = "step 1: "  # before the name of a gradient that an optimizer has stepped by
_TIMES = re.compile(r"(\d+) times")
_WORDS = {
    Facet.OUTPUTS: "outputs",
    Facet.INPUT_GRADIENTS: "input gradients",
    Facet.PARAMETER_GRADIENTS: "parameter gradients",
    Facet.BUFFERS: "buffers",
    Facet.RNG: "random generators",
    Facet.PARAMETERS: "parameters",
    Facet.OPTIMIZER_STATE: "parts of the optimizer's state",
    Facet.SCHEDULE: "parts of the schedule's state",
    Facet.SAMPLER_POSITION: "parts of the data's state",
    Facet.EXTRA_STATE: "parts of the extra state",
    Facet.NEXT_STEPS: "values of the next steps",
}


def compare_values(
    facet: Facet, compared_count: int, again: Iterable[Row], checkpointed: Iterable[Row]
) -> FacetResult:
    """Find the value of a facet from the rows of the second plain and of the checkpointed run."""
    noise = {row.name: row for row in again if row.facet is facet}
    rows = {row.name: row for row in checkpointed if row.facet is facet}
    if not compared_count:
        return _nothing_to_compare(facet)
    values = {
        name: _value(noise.get(name), rows.get(name)) for name in sorted(noise.keys() | rows.keys())
    }
    worst = max(values.values(), key=_ORDER.index, default=FacetValue.EQUAL_BITWISE)
    names = [name for name, value in values.items() if value is worst]
    shown = noise if worst is FacetValue.INCONCLUSIVE else rows
    differences = [row.max_difference for row in rows.values() if row.max_difference is not None]
    return FacetResult(
        facet=facet,
        value=worst,
        detail=_detail(facet, worst, compared_count, [shown[n] for n in names if n in shown]),
        max_difference=max(differences, default=0.0 if not rows else None),
        names=tuple(names[:MOST_NAMES]),
        compared_count=compared_count,
        different_count=len(values) if worst is not FacetValue.EQUAL_BITWISE else 0,
        fix_hint=fix_hint(facet, worst),
    )


def _value(noise: Row | None, row: Row | None) -> FacetValue:
    if noise is not None and noise.closeness is Closeness.DIFFERENT:
        return FacetValue.INCONCLUSIVE
    if row is None:
        return FacetValue.EQUAL_BITWISE if noise is None else FacetValue.WITHIN_NOISE
    if noise is not None and _within(row.max_difference, noise.max_difference):
        return FacetValue.WITHIN_NOISE
    if row.closeness is Closeness.CLOSE:
        return FacetValue.WITHIN_TOLERANCE
    return FacetValue.DIFFERENT


def _within(difference: float | None, noise: float | None) -> bool:
    return difference is not None and noise is not None and difference <= NOISE_FACTOR * noise


def _nothing_to_compare(facet: Facet) -> FacetResult:
    reasons = {
        Facet.OUTPUTS: "The model returns nothing",
        Facet.INPUT_GRADIENTS: "No input asks for a gradient",
        Facet.PARAMETER_GRADIENTS: "The model has no parameters",
        Facet.BUFFERS: "The model has no buffers",
        Facet.PARAMETERS: "The model has no parameters",
        Facet.SCHEDULE: "The training has no schedule",
        Facet.EXTRA_STATE: "The training names no extras",
    }
    return FacetResult(
        facet=facet, value=FacetValue.NOT_CHECKED, detail=reasons.get(facet, "There is none")
    )


def _detail(facet: Facet, value: FacetValue, compared: int, rows: Sequence[Row]) -> str:
    words = _WORDS[facet]
    if value is FacetValue.EQUAL_BITWISE:
        return f"{compared} of {compared} {words} are equal bit for bit"
    said = {
        FacetValue.WITHIN_NOISE: "differ by no more than two plain runs do",
        FacetValue.WITHIN_TOLERANCE: "differ inside the tolerance of their dtype",
        FacetValue.DIFFERENT: "differ",
        FacetValue.INCONCLUSIVE: "differ between two plain runs already",
    }[value]
    if value is FacetValue.WITHIN_TOLERANCE and any(row.is_rounding for row in rows):
        said += ", or by rounding beside larger values"
    first = rows[0] if rows else None
    example = f", first {first.name}: {first.note}" if first and first.note else ""
    return f"{len(rows)} of {compared} {words} {said}{example}"


def with_totals(*runs: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """Add to the states of every run what there is in all of each kind whose names pass.

    ``runs`` begin with two plain ones. A file that every run names anew has no counterpart in
    another; that it is written twice shows in how often files were opened.
    """
    plain, again, *_ = runs
    kinds = sorted({_kind(name) for name in _one_sided(plain, again)} - {""})
    return tuple(dict(run) | _totals(run, kinds) for run in runs)


def _totals(run: Mapping[str, str], kinds: Iterable[str]) -> dict[str, str]:
    counts: Counter[str] = Counter()
    for name, said in run.items():
        times = _TIMES.fullmatch(said)
        counts[_kind(name)] += int(times[1]) if times else 1
    return {f"{kind}, in all": str(counts[kind]) for kind in kinds}


def compare_states(
    facet: Facet,
    plain: Mapping[str, str],
    again: Mapping[str, str],
    checkpointed: Mapping[str, str],
) -> tuple[list[str], list[str]]:
    """Name the entries that differ only when checkpointed, and those that no two plain runs share.

    A thing whose container differs is not named again, and no key of a container whose keys two
    plain runs do not share.
    """
    unsteady = _different(plain, again)
    noise = set(unsteady)
    changed = [name for name in _different(plain, checkpointed) if name not in noise]
    if facet is not Facet.SIDE_EFFECTS:
        return changed, unsteady
    passing = {_container(name) for name in _one_sided(plain, again)}
    changed = [
        name
        for name in changed
        if (name in plain) is (name in checkpointed) or _container(name) not in passing
    ]
    return _outermost(changed, noise), _outermost(unsteady, set())


def _different(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _one_sided(one: Mapping[str, str], other: Mapping[str, str]) -> Iterable[str]:
    return one.keys() ^ other.keys()


def _outermost(names: Sequence[str], noise: set[str]) -> list[str]:
    given = set(names) | noise
    return [name for name in names if not any(parent in given for parent in _parents(name))]


def _container(name: str) -> str:
    """Name what a thing lies in; a file, a socket and the like lie in all of their kind."""
    inner = max(name.rfind("."), name.rfind("["))
    return _kind(name) or (name[:inner] if inner > 0 else "")


def _kind(name: str) -> str:
    """Name the kind of an effect, of a rank where one is said; empty for a thing of Python's."""
    rank = OF_RANK.match(name)
    start = rank.end() if rank else 0
    first = min(name.find(letter, start) % (len(name) + 1) for letter in " .[")
    if name[first : first + 1] != " ":
        return ""
    kind, said, _ = name.partition(": ")
    return kind if said else name[:first]


def _parents(name: str) -> Iterable[str]:
    for place, letter in enumerate(name):
        if letter in ".[" and place:
            yield name[:place]
