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

from haversack.verify import Facet, FacetValue, VerifySchedule, VerifyVerdict

PACKAGE = "haversack_server.verify"
TABLE = "cases.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One workload: what it is an example of, how it is run, and what is expected of it."""

    name: str
    category: str
    description: str
    schedule: VerifySchedule
    verdict: VerifyVerdict
    facets: Mapping[Facet, FacetValue]

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
    )
