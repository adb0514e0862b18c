"""Estimate's door: picks the room for the subject, and answers the variations beside it."""

from dataclasses import replace
from functools import partial

from haversack.basis import Basis
from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.estimate import Estimate, EstimateRequest, WhatIf, WhatIfAnswer
from haversack.questions import EstimateQuestion
from haversack.run import TrainingRun
from haversack_server.estimate import knobs
from haversack_server.estimate.asked import asked
from haversack_server.estimate.model import estimate_model
from haversack_server.estimate.oom import explain_alone
from haversack_server.estimate.states_only import estimate_parameter_count, estimate_state_bytes
from haversack_server.estimate.verdict import not_modelled
from haversack_server.estimate.windows import estimate_units
from haversack_server.memory.degrees import resolve
from haversack_server.memory.inputs.settled import Settled, settle, with_documents
from haversack_server.memory.kernel_profile import load
from haversack_server.memory.model_run import model_run
from haversack_server.memory.stopping import Stop, go_on, never
from haversack_server.memory.unmodelled import unmodelled
from haversack_server.memory.unused import beside_budget
from haversack_server.memory.variations import placed, unread_there
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
    settled = settle(request)
    answer = _one(settled.run, stop, settled.unmodelled)
    what_ifs, in_vain = [], [*answer.ignored_inputs, *beside_budget(request)]
    for place, what_if in enumerate(request.what_ifs):
        path = f"what_ifs[{place}]"
        varied = placed(path, partial(_varied, settled, what_if, stop))
        what_ifs.append(_beside(answer, what_if, varied))
        in_vain += unread_there(path, what_if, varied.ignored_inputs)
    answer = replace(answer, ignored_inputs=tuple(in_vain))
    what_ifs += _of_knobs(settled, answer, stop)
    if request.oom is not None and answer.oom is None:
        answer = replace(answer, oom=explain_alone(request.oom))
    return replace(with_documents(answer, settled), what_ifs=tuple(what_ifs))


def subject_of(run: TrainingRun) -> str:
    """The name of the subject that is set."""
    return next(name for name, is_set in run.subjects().items() if is_set)


def _one(request: EstimateRequest, stop: Stop, in_documents: tuple[str, ...]) -> Estimate:
    go_on(stop)
    subject = subject_of(request)
    if subject not in _ANSWERS:
        raise NotSupportedError(
            f"{subject}: this version estimates {', '.join(_ANSWERS)}; send one of these"
        )
    if request.kernel_profile:
        load(request.kernel_profile)  # an unknown name is refused for every subject
    # A model that the documents hold and that is not modelled cannot be asked for its own limits.
    left_out = in_documents or unmodelled(request, resolve(request.parallelism))
    return _refused(left_out) if left_out else _ANSWERS[subject](request, stop)


def _refused(left_out: tuple[str, ...]) -> Estimate:
    """Give no figures where an axis that divides everything is not modelled."""
    judgement = not_modelled(left_out[0])
    return Estimate(
        verdict=judgement.verdict,
        reason_code=judgement.reason_code,
        reason=judgement.reason,
        not_modelled=left_out,
        model_version=MODEL_VERSION,
        basis=Basis.ANALYTIC,
    )


def _varied(settled: Settled[EstimateRequest], what_if: WhatIf, stop: Stop) -> Estimate:
    varied = knobs.varied(settled.run, what_if)
    return _one(varied, stop, settled.unmodelled)


def _of_knobs(
    settled: Settled[EstimateRequest], answer: Estimate, stop: Stop
) -> list[WhatIfAnswer]:
    """Answer one variation for every setting that is open to the run, the largest saving first."""
    if answer.peak is None or EstimateQuestion.KNOBS not in asked(settled.run):
        return []
    found = []
    has_experts = bool(model_run(settled.run).architecture.experts)
    for what_if in knobs.knobs(settled.run, has_experts=has_experts):
        try:
            varied = _varied(settled, what_if, stop)
        except InvalidRequestError:
            continue  # this value is not open to the run, such as a tp that divides no heads
        if varied.peak is not None:
            found.append(_beside(answer, what_if, varied))
    return sorted(found, key=lambda each: (each.delta_bytes or 0, each.name))


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
        collectives=answer.collectives,
        recompute_ns=answer.recompute_ns,
    )


def _delta(base: Estimate, answer: Estimate) -> int | None:
    """Compare peak with peak, or steady bytes where neither has a peak; else nothing."""
    if base.peak and answer.peak:
        return answer.peak.allocated.expected_bytes - base.peak.allocated.expected_bytes
    if base.steady_bytes and answer.steady_bytes and not (base.peak or answer.peak):
        return answer.steady_bytes - base.steady_bytes
    return None
