"""Figures of a benchmark, each with the gate it has to reach, if there is one."""

from collections.abc import Iterable
from typing import NamedTuple


class Row(NamedTuple):
    """Hold one figure."""

    section: str
    what: str
    value: float
    unit: str
    gate: str = ""
    reached: bool | None = None

    def __str__(self) -> str:
        verdict = {None: "", True: "reached", False: "MISSED"}[self.reached]
        figure = f"{self.value:>10.2f} {self.unit:<8}"
        return f"{self.section:>8}  {self.what:<64}{figure}{self.gate:>9}  {verdict}".rstrip()


def at_least(section: str, what: str, value: float, gate: float, unit: str = "x") -> Row:
    """Return a figure that is to be ``gate`` or more."""
    return Row(section, what, value, unit, f">= {gate:g}", value >= gate)


def at_most(section: str, what: str, value: float, gate: float, unit: str = "x") -> Row:
    """Return a figure that is to be ``gate`` or less."""
    return Row(section, what, value, unit, f"<= {gate:g}", value <= gate)


def shown(rows: Iterable[Row]) -> list[Row]:
    """Print every figure as soon as it is there, and return all."""
    collected = []
    for row in rows:
        print(row, flush=True)
        collected.append(row)
    return collected
