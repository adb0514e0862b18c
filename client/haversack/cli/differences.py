"""Two estimates compared: the peak, its terms, the phases; and whether it grew too much.

Knows nothing of files and pages.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from haversack.checks import shortly
from haversack.cli.saved import Side
from haversack.estimate import Estimate, TermCategory
from haversack.reading import refuse
from haversack.units import parse_bytes


@dataclass(frozen=True, slots=True)
class Threshold:
    """The most that the figure may grow: a share of the base, or bytes."""

    share: float | None = None
    bytes: int | None = None

    def is_passed(self, base_bytes: int, delta_bytes: int) -> bool:
        """Tell whether a growth is above the threshold."""
        if self.share is not None:
            return delta_bytes > base_bytes * self.share
        return self.bytes is not None and delta_bytes > self.bytes


@dataclass(frozen=True, slots=True)
class Row:
    """A named figure on both sides, in bytes; 0 where a side has it not."""

    name: str
    base_bytes: int
    head_bytes: int

    @property
    def delta_bytes(self) -> int:
        """How much the figure grew."""
        return self.head_bytes - self.base_bytes


@dataclass(frozen=True, slots=True)
class Difference:
    """Two estimates side by side; ``compared`` is "peak", or "steady" where neither has a peak."""

    base: Side
    head: Side
    compared: str
    total: Row
    terms: tuple[Row, ...]
    phases: tuple[Row, ...]

    @property
    def share(self) -> float | None:
        """How much the figure grew, of the base; None where the base is 0."""
        return self.total.delta_bytes / self.total.base_bytes if self.total.base_bytes else None

    @property
    def models_differ(self) -> bool:
        """Whether the two come from different versions of the memory model."""
        return self.base.answer.model_version != self.head.answer.model_version

    def fails(self, threshold: Threshold | None) -> bool:
        """Tell whether the growth is above a threshold."""
        total = self.total
        return threshold is not None and threshold.is_passed(total.base_bytes, total.delta_bytes)


def read_threshold(text: str, field: str) -> Threshold:
    """Read "2%" or "512MiB"."""
    percent = re.fullmatch(r"\s*(\d{1,6}(?:\.\d{1,6})?)\s*%\s*", text)
    if percent:
        return Threshold(share=float(percent[1]) / 100)
    if re.fullmatch(r"[\d.\s]*", text):
        refuse(f"{shortly(text)} has no unit; give such as 2% or 512MiB", field)
    if "%" in text or not text.lstrip()[0].isdecimal():
        refuse(
            f"{shortly(text)} is no limit of 0 or more; give a share such as 2%, or bytes such as "
            "512MiB",
            field,
        )
    return Threshold(bytes=parse_bytes(text, field))


def difference(base: Side, head: Side) -> Difference | None:
    """Compare two sides; None where one has a peak and the other has none, or both are unknown."""
    compared = _compared(base.answer, head.answer)
    if compared is None:
        return None
    return Difference(
        base=base,
        head=head,
        compared=compared,
        total=Row(compared, _figure(base.answer, compared), _figure(head.answer, compared)),
        terms=_rows(_terms(base.answer), _terms(head.answer)),
        phases=_rows(_phases(base.answer), _phases(head.answer)),
    )


def _compared(base: Estimate, head: Estimate) -> str | None:
    if base.peak is not None and head.peak is not None:
        return "peak"
    without = base.peak is None and head.peak is None
    return "steady" if without and base.steady_bytes and head.steady_bytes else None


def _figure(answer: Estimate, compared: str) -> int:
    if compared == "peak" and answer.peak is not None:
        return answer.peak.allocated.expected_bytes
    return answer.steady_bytes


def _terms(answer: Estimate) -> dict[str, int]:
    inside = (term for term in answer.terms if term.category is not TermCategory.OUTSIDE)
    return {term.name: term.bytes for term in inside}


def _phases(answer: Estimate) -> dict[str, int]:
    return {phase.name: phase.peak_bytes for phase in answer.phases}


def _rows(base: Mapping[str, int], head: Mapping[str, int]) -> tuple[Row, ...]:
    """Pair figures by name, in the order of the base; what only the head has comes last."""
    names = dict.fromkeys((*base, *head))
    return tuple(Row(name, base.get(name, 0), head.get(name, 0)) for name in names)


def as_json(made: Difference, threshold: Threshold | None) -> dict[str, Any]:
    """Give a comparison as the object that ``--json`` prints."""
    return {
        "base": _side(made.base),
        "head": _side(made.head),
        "compared": made.compared,
        "base_bytes": made.total.base_bytes,
        "head_bytes": made.total.head_bytes,
        "delta_bytes": made.total.delta_bytes,
        "delta_share": made.share,
        "fail_above": None if threshold is None else asdict(threshold),
        "failed": made.fails(threshold),
        "terms": _listed(made.terms),
        "phases": _listed(made.phases),
    }


def _side(side: Side) -> dict[str, str]:
    answer = side.answer
    return {
        "name": side.name,
        "verdict": f"ESTIMATE_VERDICT_{answer.verdict.name}",
        "peak_phase": answer.peak_phase,
        "peak_moment": answer.peak_moment,
        "request_digest": answer.request_digest,
        "model_version": answer.model_version,
    }


def _listed(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [
        {
            "name": row.name,
            "base_bytes": row.base_bytes,
            "head_bytes": row.head_bytes,
            "delta_bytes": row.delta_bytes,
        }
        for row in rows
    ]
