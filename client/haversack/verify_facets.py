"""Facets of a run, and what a comparison finds of each.

What each name means is said once, in ``verify.proto``.
"""

import enum
from dataclasses import dataclass

from haversack.errors import InvalidRequestError


class Facet(enum.IntEnum):
    """One compared aspect of a run."""

    UNSPECIFIED = 0
    OUTPUTS = 1
    INPUT_GRADIENTS = 2
    PARAMETER_GRADIENTS = 3
    BUFFERS = 4
    RNG = 5
    SIDE_EFFECTS = 6
    RECOMPUTE_COUNTS = 7
    MEMORY = 8
    TIME = 9
    PARAMETERS = 10
    OPTIMIZER_STATE = 11
    SCHEDULE = 12
    SAMPLER_POSITION = 13
    EXTRA_STATE = 14
    NEXT_STEPS = 15

    @classmethod
    def named(cls, name: str, *, field: str = "waivers") -> "Facet":
        """Find the facet of a name such as ``buffers`` or ``input-gradients``."""
        spelled = name.strip().upper().replace("-", "_")
        if spelled in cls.__members__ and cls[spelled]:
            return cls[spelled]
        known = ", ".join(each.name.lower() for each in cls if each)
        raise InvalidRequestError(f"{name!r} is not a facet; use one of {known}", field=field)


class FacetValue(enum.IntEnum):
    """What the comparison of a facet found."""

    UNSPECIFIED = 0
    EQUAL_BITWISE = 1
    WITHIN_NOISE = 2
    WITHIN_TOLERANCE = 3
    DIFFERENT = 4
    RAISED_ONLY_CHECKPOINTED = 5
    RAISED_ONLY_PLAIN = 6
    INCONCLUSIVE = 7
    NOT_RECOMPUTED = 8
    TRUNCATED = 9
    NOT_CHECKED = 10
    AS_EXPECTED = 11
    RAISED_ONLY_RESUMED = 12


class FacetSeverity(enum.IntEnum):
    """What a facet's value means for the verdict; higher is worse."""

    UNSPECIFIED = 0
    INFORMATION = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class FacetResult:
    """What was found for one facet."""

    facet: Facet
    value: FacetValue
    severity: FacetSeverity = FacetSeverity.UNSPECIFIED
    detail: str = ""
    max_difference: float | None = None
    names: tuple[str, ...] = ()
    compared_count: int = 0
    different_count: int = 0
    fix_hint: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifyWaiver:
    """A facet that the caller waived, and what it would have been."""

    facet: Facet
    value: FacetValue
    used: bool = False
