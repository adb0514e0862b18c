"""The expected verdict of every built-in workload, facet by facet: package data, ``cases.json``.

A facet that a case does not list is expected to be equal, as expected, or to have nothing to
compare. The table was made for one version of torch and says which.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from haversack.verify import DifferenceCause, Facet, FacetValue, VerifySchedule, VerifyVerdict

PACKAGE = "haversack_server.verify"
TABLE = "cases.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where the first difference of a case is: ``line`` is the text of the user's line."""

    module: str
    operation: str
    line: str
    cause: DifferenceCause


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One workload: what it is an example of, how it is run, and what is expected of it.

    ``place`` is None where no operation of a replay differs, ``state`` names the things whose
    state differs.
    """

    name: str
    category: str
    description: str
    schedule: VerifySchedule
    verdict: VerifyVerdict
    facets: Mapping[Facet, FacetValue]
    place: Place | None = None
    state: tuple[str, ...] = ()

    @property
    def is_resumed(self) -> bool:
        """Whether the case is of training that is stopped and gone on with."""
        return self.category == "resume"

    @property
    def different(self) -> tuple[Facet, ...]:
        """The facets whose value is DIFFERENT."""
        return tuple(f for f in sorted(self.facets) if self.facets[f] is FacetValue.DIFFERENT)


@cache
def table() -> Mapping[str, Any]:
    """Return the table as it is stored."""
    read: Mapping[str, Any] = json.loads((files(PACKAGE) / TABLE).read_text(encoding="utf-8"))
    return read


@cache
def cases() -> Mapping[str, Case]:
    """Return every case by name."""
    return MappingProxyType({row["name"]: _case(row) for row in table()["cases"]})


def _case(row: Mapping[str, Any]) -> Case:
    return Case(
        name=row["name"],
        category=row["category"],
        description=row["description"],
        schedule=VerifySchedule[row.get("schedule", "ONE_MICROBATCH")],
        verdict=VerifyVerdict[row["verdict"]],
        facets={Facet[f]: FacetValue[v] for f, v in row.get("facets", {}).items()},
        place=_place(row["place"]) if "place" in row else None,
        state=tuple(row.get("state", ())),
    )


def _place(row: Mapping[str, str]) -> Place:
    return Place(
        module=row["module"],
        operation=row["operation"],
        line=row["line"],
        cause=DifferenceCause[row["cause"]],
    )
