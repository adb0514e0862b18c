"""The verdict rule: what each facet's value means, and the answer that follows from all of them.

A pure function of findings, waivers and strictness. Knows nothing of how facets are compared.

    value                     outputs, gradients, buffers, RNG    side effects, counts, memory
    RAISED_ONLY_*             error                               error
    INCONCLUSIVE, TRUNCATED   error                               error
    DIFFERENT                 error                               warning
    NOT_RECOMPUTED            -                                   warning
    WITHIN_TOLERANCE          warning                             -
    all others                information                         information

Time is information whatever its value. All facets of a resume job are as outputs are.

A waived facet is information, unless a run raised. Strict makes every warning an error. Among
errors, a model that does not reproduce itself decides for INCONCLUSIVE: that a replay of it raises
may be chance as well. Then come a run that raised alone and a difference, then a probe that was
truncated. Only a training that cannot be resumed is different whatever its steps do.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from haversack.verify import (
    Facet,
    FacetResult,
    FacetSeverity,
    FacetValue,
    VerifyVerdict,
    VerifyWaiver,
)

STRONG_FACETS = frozenset(
    {
        Facet.OUTPUTS,
        Facet.INPUT_GRADIENTS,
        Facet.PARAMETER_GRADIENTS,
        Facet.BUFFERS,
        Facet.RNG,
        Facet.PARAMETERS,
        Facet.OPTIMIZER_STATE,
        Facet.SCHEDULE,
        Facet.SAMPLER_POSITION,
        Facet.EXTRA_STATE,
        Facet.NEXT_STEPS,
    }
)
RAISED = frozenset(
    {
        FacetValue.RAISED_ONLY_CHECKPOINTED,
        FacetValue.RAISED_ONLY_PLAIN,
        FacetValue.RAISED_ONLY_RESUMED,
    }
)
_ALWAYS_ERRORS = RAISED | {FacetValue.INCONCLUSIVE, FacetValue.TRUNCATED}
_WARNINGS = frozenset({FacetValue.NOT_RECOMPUTED, FacetValue.WITHIN_TOLERANCE})


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The verdict, with the facets and their severities that it follows from."""

    verdict: VerifyVerdict
    facets: tuple[FacetResult, ...]
    waivers: tuple[VerifyWaiver, ...]
    warnings: tuple[str, ...]


def judge(
    findings: Iterable[FacetResult], *, waivers: Collection[Facet] = (), strict: bool = False
) -> Judgement:
    """Give every finding its severity, and the verdict that follows."""
    facets = tuple(
        replace(finding, severity=severity(finding, waivers=waivers, strict=strict))
        for finding in sorted(findings, key=lambda finding: finding.facet)
    )
    return Judgement(
        verdict=_verdict(facets),
        facets=facets,
        waivers=tuple(_waivers(facets, waivers, strict)),
        warnings=tuple(f.detail for f in facets if f.severity is FacetSeverity.WARNING),
    )


def severity(
    finding: FacetResult, *, waivers: Collection[Facet] = (), strict: bool = False
) -> FacetSeverity:
    """What one finding means for the verdict."""
    if finding.facet is Facet.TIME:
        return FacetSeverity.INFORMATION
    if finding.facet in waivers and finding.value not in RAISED:
        return FacetSeverity.INFORMATION
    own = _own_severity(finding.facet, finding.value)
    return FacetSeverity.ERROR if strict and own is FacetSeverity.WARNING else own


def _own_severity(facet: Facet, value: FacetValue) -> FacetSeverity:
    if value in _ALWAYS_ERRORS:
        return FacetSeverity.ERROR
    if value is FacetValue.DIFFERENT:
        return FacetSeverity.ERROR if facet in STRONG_FACETS else FacetSeverity.WARNING
    return FacetSeverity.WARNING if value in _WARNINGS else FacetSeverity.INFORMATION


def _verdict(facets: Collection[FacetResult]) -> VerifyVerdict:
    decisive = {each.value for each in facets if each.severity is FacetSeverity.ERROR}
    if FacetValue.RAISED_ONLY_RESUMED in decisive:
        return VerifyVerdict.DIFFERENT
    if FacetValue.INCONCLUSIVE in decisive:
        return VerifyVerdict.INCONCLUSIVE
    if decisive - {FacetValue.TRUNCATED}:
        return VerifyVerdict.DIFFERENT
    return VerifyVerdict.INCONCLUSIVE if decisive else VerifyVerdict.EQUIVALENT


def _waivers(
    facets: Iterable[FacetResult], waivers: Collection[Facet], strict: bool
) -> Iterable[VerifyWaiver]:
    for found in facets:
        if found.facet in waivers:
            without = severity(found, strict=strict)
            used = without is not found.severity and without is FacetSeverity.ERROR
            yield VerifyWaiver(facet=found.facet, value=found.value, used=used)
