"""Plan's door: picks the rung for the subject."""

from dataclasses import replace
from functools import partial

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.plan import Plan, PlanRequest, PlanWhatIf, PlanWhatIfAnswer
from haversack_server.memory.kernel_profile import load
from haversack_server.memory.variations import overlaid, placed
from haversack_server.memory.version import MODEL_VERSION
from haversack_server.plan.ceiling import Cancel
from haversack_server.plan.independent import plan_candidates, plan_recompute_candidates
from haversack_server.plan.model import plan_model

_ANSWERS = {
    "candidates": plan_candidates,
    "recompute_candidates": plan_recompute_candidates,
    "documents": plan_model,
}
_STATES_ONLY = ("state_bytes", "parameter_count", "units")


def plan(request: PlanRequest, cancel: Cancel = None) -> Plan:
    """Answer a request and its variations.

    Raises the kernels' SolveCancelled once ``cancel[0]`` is set.
    """
    what_ifs = []
    answer = _one(request, cancel)
    for place, what_if in enumerate(request.what_ifs):
        varied = placed(f"what_ifs[{place}]", partial(_varied, request, what_if, cancel))
        what_ifs.append(_beside(what_if, varied))
    return replace(answer, what_ifs=tuple(what_ifs))


def _one(request: PlanRequest, cancel: Cancel) -> Plan:
    if request.kernel_profile:
        load(request.kernel_profile)  # an unknown name is refused for every subject
    subject = next(name for name, is_set in request.subjects().items() if is_set)
    if subject in _STATES_ONLY:
        raise InvalidRequestError(
            "model states have no activations to choose from; send documents or candidates",
            field=subject,
        )
    if subject not in _ANSWERS:
        raise NotSupportedError(
            f"{subject}: this version plans for {', '.join(_ANSWERS)}; send one of these"
        )
    answer = _ANSWERS[subject](request, cancel)
    ignored = answer.ignored_inputs + _ignored(request)
    return replace(answer, ignored_inputs=ignored, model_version=MODEL_VERSION)


def _ignored(request: PlanRequest) -> tuple[str, ...]:
    """Name what has no part in a plan of this kind."""
    given = {
        "measurements: not compared with yet": bool(request.measurements),
        "constraints: not used for candidates": request.constraints is not None
        and not request.documents,
    }
    return tuple(sentence for sentence, is_given in given.items() if is_given)


def _varied(request: PlanRequest, what_if: PlanWhatIf, cancel: Cancel) -> Plan:
    varied = replace(
        request,
        training=overlaid(request.training, what_if.training),
        parallelism=overlaid(request.parallelism, what_if.parallelism),
        device=overlaid(request.device, what_if.device),
        budget=what_if.budget or request.budget,
        frontier_points=0,
        what_ifs=(),
    )
    return _one(varied, cancel)


def _beside(what_if: PlanWhatIf, answer: Plan) -> PlanWhatIfAnswer:
    return PlanWhatIfAnswer(
        name=what_if.name,
        status=answer.status,
        extra_ns=answer.extra_ns,
        predicted_peak_bytes=answer.predicted_peak_bytes,
        floor_bytes=answer.floor_bytes,
        reason=answer.reason,
    )
