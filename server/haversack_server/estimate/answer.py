"""Estimate's door: picks the room for the subject, and answers the variations beside it."""

from dataclasses import replace
from functools import partial

from haversack.basis import Basis
from haversack.errors import NotSupportedError
from haversack.estimate import Estimate, EstimateRequest, WhatIf, WhatIfAnswer
from haversack.run import TrainingRun
from haversack_server.estimate.model import estimate_model
from haversack_server.estimate.states_only import estimate_parameter_count, estimate_state_bytes
from haversack_server.estimate.verdict import limit_of, not_modelled
from haversack_server.estimate.windows import estimate_units
from haversack_server.memory.degrees import resolve
from haversack_server.memory.kernel_profile import load
from haversack_server.memory.stopping import Stop, go_on, never
from haversack_server.memory.unmodelled import unmodelled
from haversack_server.memory.variations import overlaid, placed
from haversack_server.memory.version import MODEL_VERSION

_ANSWERS = {
    "state_bytes": estimate_state_bytes,
    "parameter_count": estimate_parameter_count,
    "units": estimate_units,
    "documents": estimate_model,
}


def estimate(request: EstimateRequest, stop: Stop = never) -> Estimate:
    """Answer a request and its variations. Pure: equal requests have equal answers.

    Raises ``CallCancelledError`` soon after ``stop()`` is true.
    """
    answer = _one(request, stop)
    what_ifs = []
    for place, what_if in enumerate(request.what_ifs):
        varied = placed(f"what_ifs[{place}]", partial(_varied, request, what_if, stop))
        what_ifs.append(_beside(answer, what_if, varied))
    return replace(answer, what_ifs=tuple(what_ifs))


def subject_of(run: TrainingRun) -> str:
    """The name of the subject that is set."""
    return next(name for name, is_set in run.subjects().items() if is_set)


def _one(request: EstimateRequest, stop: Stop) -> Estimate:
    go_on(stop)
    subject = subject_of(request)
    if subject not in _ANSWERS:
        raise NotSupportedError(
            f"{subject}: this version estimates {', '.join(_ANSWERS)}; send one of these"
        )
    if request.kernel_profile:
        load(request.kernel_profile)  # an unknown name is refused for every subject
    left_out = unmodelled(request, resolve(request.parallelism))
    return _refused(request, left_out) if left_out else _ANSWERS[subject](request, stop)


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


def _varied(request: EstimateRequest, what_if: WhatIf, stop: Stop) -> Estimate:
    varied = replace(
        request,
        training=overlaid(request.training, what_if.training),
        parallelism=overlaid(request.parallelism, what_if.parallelism),
        device=overlaid(request.device, what_if.device),
        what_ifs=(),
    )
    return _one(varied, stop)


def _beside(base: Estimate, what_if: WhatIf, answer: Estimate) -> WhatIfAnswer:
    return WhatIfAnswer(
        name=what_if.name,
        verdict=answer.verdict,
        reason_code=answer.reason_code,
        peak=answer.peak,
        peak_phase=answer.peak_phase,
        delta_bytes=_delta(base, answer),
        reason=answer.reason,
        not_modelled=answer.not_modelled,
    )


def _delta(base: Estimate, answer: Estimate) -> int | None:
    """Compare peak with peak, or steady bytes where neither has a peak; else nothing."""
    if base.peak and answer.peak:
        return answer.peak.allocated.expected_bytes - base.peak.allocated.expected_bytes
    if base.steady_bytes and answer.steady_bytes and not (base.peak or answer.peak):
        return answer.steady_bytes - base.steady_bytes
    return None
