"""Plan's door: picks the rung for the subject."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.plan import Plan, PlanRequest
from haversack_server.memory.kernel_profile import load
from haversack_server.memory.version import MODEL_VERSION
from haversack_server.plan.independent import plan_candidates, plan_recompute_candidates
from haversack_server.plan.model import plan_model

_ANSWERS = {
    "candidates": plan_candidates,
    "recompute_candidates": plan_recompute_candidates,
    "documents": plan_model,
}
_STATES_ONLY = ("state_bytes", "parameter_count", "units")


def plan(request: PlanRequest, cancel: NDArray[np.uint8] | None = None) -> Plan:
    """Answer a request; raises the kernels' SolveCancelled once ``cancel[0]`` is set."""
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
    return replace(_ANSWERS[subject](request, cancel), model_version=MODEL_VERSION)
