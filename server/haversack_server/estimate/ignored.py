"""What of an Estimate request had no part in its answer."""

from collections.abc import Set

from haversack.estimate import EstimateRequest
from haversack_server.memory.unused import unused


def ignored(request: EstimateRequest, used_training: Set[str]) -> tuple[str, ...]:
    """Name the settings that the subject does not use."""
    return unused(request, training=used_training) + measured(request)


def measured(request: EstimateRequest) -> tuple[str, ...]:
    """Say that measurements are not compared with yet."""
    return ("measurements: not compared with yet",) if request.measurements else ()
