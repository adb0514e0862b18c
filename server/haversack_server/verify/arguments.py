"""What a built-in workload takes as ``args_json``: integers within bounds, by name.

Knows the rule, not the workloads, and not torch: a job that cannot be built never starts.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haversack.errors import Violation, check
from haversack.strict_json import parse_object

_LONGEST_SHOWN = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """An integer from ``least`` to ``most``, ``default`` where it is not given.

    Where ``divides`` names another argument, that one must be a multiple of it.
    """

    name: str
    default: int
    least: int = 1
    most: int
    divides: str = ""


def check_arguments(
    workload: str, takes: Sequence[Argument], args_json: str, *, field: str
) -> None:
    """Raise InvalidRequestError with every argument that the workload does not take as given."""
    given = parse_object(args_json or "{}", field=field)
    known = {each.name: each for each in takes}
    sentences = [_unknown(workload, name, list(known)) for name in given if name not in known]
    sentences += [
        f"{name} of {workload} is {_shown(value)}; give an integer from {known[name].least} to "
        f"{known[name].most}"
        for name, value in given.items()
        if name in known and not _fits(known[name], value)
    ]
    if not sentences:
        values = {name: given.get(name, each.default) for name, each in known.items()}
        sentences = _indivisible(workload, takes, values)
    check([Violation(field, sentence) for sentence in sentences])


def _unknown(workload: str, name: str, known: list[str]) -> str:
    if not known:
        return f"{workload} takes no arguments, but {_shown(name)} was given; leave them out"
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{workload} has no argument {_shown(name)}; it takes {', '.join(known)}{hint}"


def _fits(argument: Argument, value: Any) -> bool:
    return type(value) is int and argument.least <= value <= argument.most


def _indivisible(workload: str, takes: Sequence[Argument], values: Mapping[str, int]) -> list[str]:
    return [
        f"{each.divides} of {workload} is {values[each.divides]}; give a multiple of {each.name}, "
        f"which is {values[each.name]}"
        for each in takes
        if each.divides and values[each.divides] % values[each.name]
    ]


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
