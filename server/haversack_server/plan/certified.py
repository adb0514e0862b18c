"""Certification: what a planned step was seen to need decides what is said of its plan.

Runs nothing and solves nothing: ``haversack_server.planner`` has the step run, and the plan made
anew where execution and prediction are apart.
"""

from dataclasses import replace

from haversack.basis import Basis
from haversack.observed import Observed, certificate_of, is_apart
from haversack.plan import Certificate, Plan
from haversack.units import format_bytes


def certified(plan: Plan, observed: Observed) -> Plan:
    """Put the certificate on a plan; it stands on what was seen where that is as predicted."""
    certificate = certificate_of(plan, observed)
    found = replace(plan, certificate=certificate, reason=f"{plan.reason}; {_said(certificate)}")
    return replace(found, basis=Basis.SIMULATED) if _stands(found) else found


def is_to_be_repaired(plan: Plan) -> bool:
    """Whether a certified plan is above its prediction, or so far below that time is wasted."""
    seen = _certificate(plan).observed_peak_bytes
    predicted = plan.predicted_peak_bytes or 0
    return is_apart(predicted, seen) and (seen > predicted or plan.extra_ns > 0)


def better_of(first: Plan, again: Plan) -> Plan:
    """Choose between a certified plan and the one that its repaired profile gave.

    A plan that stands wins over one that does not, then the cheaper one. ``again`` may have no
    actions, where nothing holds the budget with the repaired figures.
    """
    seen = _certificate(first)
    earlier = tuple(f"first plan: {each}" for each in seen.findings)
    if again.certificate is None:
        last = replace(seen, replanned=True, findings=earlier)
        return first if seen.holds else replace(again, certificate=last)
    if _stands(again) and (not _stands(first) or again.extra_ns < first.extra_ns):
        findings = (*earlier, *again.certificate.findings)
        return replace(
            again, certificate=replace(again.certificate, replanned=True, findings=findings)
        )
    tried = (*seen.findings, "planned anew with repaired figures: no better plan was found")
    return replace(first, certificate=replace(seen, findings=tried))


def _stands(plan: Plan) -> bool:
    certificate = _certificate(plan)
    return certificate.holds and certificate.observed_peak_bytes <= (plan.predicted_peak_bytes or 0)


def _certificate(plan: Plan) -> Certificate:
    assert plan.certificate is not None
    return plan.certificate


def _said(certificate: Certificate) -> str:
    verdict = "it holds" if certificate.holds else "it does NOT hold"
    peak = format_bytes(certificate.observed_peak_bytes)
    return f"executed as a whole under fake tensors it takes {peak}: {verdict}"
