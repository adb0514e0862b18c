"""Estimate's door: picks the room for the subject, and answers the variations beside it."""

from dataclasses import fields, replace
from typing import TypeVar

from haversack.basis import Basis
from haversack.errors import InvalidRequestError, NotSupportedError, Violation
from haversack.estimate import Estimate, EstimateRequest, WhatIf, WhatIfAnswer
from haversack.run import TrainingRun
from haversack_server.estimate.model import estimate_model
from haversack_server.estimate.states_only import estimate_parameter_count, estimate_state_bytes
from haversack_server.estimate.verdict import limit_of, not_modelled
from haversack_server.estimate.windows import estimate_units
from haversack_server.memory.degrees import resolve, unmodelled
from haversack_server.memory.kernel_profile import load
from haversack_server.memory.version import MODEL_VERSION

_ANSWERS = {
    "state_bytes": estimate_state_bytes,
    "parameter_count": estimate_parameter_count,
    "units": estimate_units,
    "documents": estimate_model,
}

Settings = TypeVar("Settings")


def estimate(request: EstimateRequest) -> Estimate:
    """Answer a request and its variations. Pure: equal requests have equal answers."""
    answer = _one(request)
    what_ifs = tuple(
        _placed(f"what_ifs[{place}]", request, answer, what_if)
        for place, what_if in enumerate(request.what_ifs)
    )
    return replace(answer, what_ifs=what_ifs)


def subject_of(run: TrainingRun) -> str:
    """The name of the subject that is set."""
    return next(name for name, is_set in run.subjects().items() if is_set)


def _one(request: EstimateRequest) -> Estimate:
    subject = subject_of(request)
    if subject not in _ANSWERS:
        raise NotSupportedError(
            f"{subject}: this version estimates {', '.join(_ANSWERS)}; send one of these"
        )
    if request.kernel_profile:
        load(request.kernel_profile)  # an unknown name is refused for every subject
    left_out = unmodelled(resolve(request.parallelism))
    return _refused(request, left_out) if left_out else _ANSWERS[subject](request)


def _refused(request: EstimateRequest, left_out: tuple[str, ...]) -> Estimate:
    """Give no figures where an axis that divides everything is not modelled."""
    judgement = not_modelled(left_out[0], limit_of(request))
    return Estimate(
        verdict=judgement.verdict,
        reason_code=judgement.reason_code,
        reason=judgement.reason,
        not_modelled=left_out,
        model_version=MODEL_VERSION,
        basis=Basis.ANALYTIC,
    )


def _placed(path: str, request: EstimateRequest, base: Estimate, what_if: WhatIf) -> WhatIfAnswer:
    """Answer a variation; what only it gets wrong, since ``base`` has an answer, is named there."""
    try:
        return _variation(request, base, what_if)
    except InvalidRequestError as wrong:
        placed = [Violation(f"{path}.{each.field}", each.description) for each in wrong.violations]
        raise InvalidRequestError(violations=placed) from wrong


def _variation(request: EstimateRequest, base: Estimate, what_if: WhatIf) -> WhatIfAnswer:
    varied = replace(
        request,
        training=overlaid(request.training, what_if.training),
        parallelism=overlaid(request.parallelism, what_if.parallelism),
        device=overlaid(request.device, what_if.device),
        what_ifs=(),
    )
    answer = _one(varied)
    delta = _expected(answer) - _expected(base) if answer.peak and base.peak else 0
    return WhatIfAnswer(
        name=what_if.name,
        verdict=answer.verdict,
        reason_code=answer.reason_code,
        peak=answer.peak,
        peak_phase=answer.peak_phase,
        delta_bytes=delta,
    )


def _expected(answer: Estimate) -> int:
    return answer.peak.allocated.expected_bytes if answer.peak else answer.steady_bytes


def overlaid(base: Settings, over: Settings | None) -> Settings:
    """Replace what ``over`` sets, field by field."""
    if over is None:
        return base
    names = [each.name for each in fields(over)]  # type: ignore[arg-type]
    given = {name: getattr(over, name) for name in names if _is_set(getattr(over, name))}
    return replace(base, **given)  # type: ignore[type-var]


def _is_set(value: object) -> bool:
    """None, UNSPECIFIED, "", () and False stand for "not given"; the number 0 is a setting."""
    return bool(value) or type(value) is int
