"""What of an Estimate request had no part in its answer."""

from collections.abc import Set

from haversack.estimate import EstimateRequest
from haversack_server.estimate.asked import unanswered
from haversack_server.memory.unused import unused


def ignored(request: EstimateRequest, used_training: Set[str]) -> tuple[str, ...]:
    """Name what a subject that is no described model does not use."""
    measured = ["measurements: a described model (documents) is needed to compare with"]
    return (
        *unused(request, training=used_training),
        *(measured if request.measurements else ()),
        *unanswered(request),
    )
