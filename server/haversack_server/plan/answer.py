"""Plan's door: picks the rung for the subject."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.plan import Plan, PlanRequest, PlanWhatIf, PlanWhatIfAnswer
from haversack_server.memory.inputs.settled import Settled, settle, with_documents
from haversack_server.memory.kernel_profile import load
from haversack_server.memory.unused import beside_budget
from haversack_server.memory.variations import device_of, overlaid, placed, unread_there
from haversack_server.memory.version import MODEL_VERSION
from haversack_server.plan.independent import plan_candidates, plan_recompute_candidates
from haversack_server.plan.model import not_sought, plan_model
from haversack_server.plan.profiled import plan_profile
from haversack_server.plan.solving import Cancel, Solving

if TYPE_CHECKING:
    from haversack_server.plan.solving import Devices

_ANSWERS = {
    "candidates": plan_candidates,
    "recompute_candidates": plan_recompute_candidates,
    "documents": plan_model,
    "profile": plan_profile,
}
_STATES_ONLY = ("state_bytes", "parameter_count", "units")


def plan(request: PlanRequest, cancel: Cancel = None, devices: "Devices" = None) -> Plan:
    """Answer a request and its variations.

    Raises the kernels' SolveCancelled once ``cancel[0]`` is set. ``devices`` gives where dense
    programmes may run; None is the CPU alone.
    """
    what_ifs, solving = [], Solving(cancel=cancel, devices=devices)
    settled = settle(request)
    answer = _one(settled.run, solving, settled.unmodelled)
    described = request.subjects()["documents"]
    in_vain = [*answer.ignored_inputs, *(beside_budget(request) if described else ())]
    for place, what_if in enumerate(request.what_ifs):
        path = f"what_ifs[{place}]"
        varied = placed(path, partial(_varied, settled, what_if, solving))
        what_ifs.append(_beside(what_if, varied))
        in_vain += unread_there(path, what_if, varied.ignored_inputs)
    answer = replace(answer, ignored_inputs=tuple(in_vain))
    return replace(with_documents(answer, settled), what_ifs=tuple(what_ifs))


def _one(request: PlanRequest, solving: Solving, in_documents: tuple[str, ...]) -> Plan:
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
    answer = not_sought(in_documents) if in_documents else _ANSWERS[subject](request, solving)
    named = {sentence.partition(":")[0] for sentence in answer.ignored_inputs}
    more = [each for each in _ignored(request) if each.partition(":")[0] not in named]
    ignored = (*answer.ignored_inputs, *more)
    return replace(answer, ignored_inputs=ignored, model_version=MODEL_VERSION)


def _ignored(request: PlanRequest) -> tuple[str, ...]:
    """Name what has no part in a plan of this kind."""
    profiled, described = request.profile is not None, request.subjects()["documents"]
    independent, limits = not (profiled or described), request.constraints
    given = {
        "measurements: not compared with yet": bool(request.measurements),
        "constraints: not used for candidates": limits is not None and independent,
        "constraints.without_segments: a described model is planned without any": described
        and limits is not None
        and limits.without_segments,
        "fit_expected: candidates have no margin": request.fit_expected and independent,
        "rank: candidates have no ranks": request.rank is not None and independent,
        "graph_ns: read for profiles only": request.graph_ns is not None and not profiled,
        **_of_host(request, described=described),
    }
    return tuple(sentence for sentence, is_given in given.items() if is_given)


def _of_host(request: PlanRequest, *, described: bool) -> dict[str, bool]:
    given = request.parallelism
    return {
        f"parallelism.{name}: a plan has no figures of hosts": described and value is not None
        for name, value in (
            ("pin_memory", given.pin_memory),
            ("ranks_per_node", given.ranks_per_node),
        )
    }


def _varied(settled: Settled[PlanRequest], what_if: PlanWhatIf, solving: Solving) -> Plan:
    request = settled.run
    varied = replace(
        request,
        training=overlaid(request.training, what_if.training),
        parallelism=overlaid(request.parallelism, what_if.parallelism),
        device=overlaid(request.device, device_of(what_if)),
        budget=what_if.budget or request.budget,
        frontier_points=0,
        what_ifs=(),
    )
    return _one(varied, solving, settled.unmodelled)


def _beside(what_if: PlanWhatIf, answer: Plan) -> PlanWhatIfAnswer:
    return PlanWhatIfAnswer(
        name=what_if.name,
        status=answer.status,
        extra_ns=answer.extra_ns,
        predicted_peak_bytes=answer.predicted_peak_bytes,
        floor_bytes=answer.floor_bytes,
        reason=answer.reason,
    )
