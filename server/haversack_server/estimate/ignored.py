"""What of an Estimate request had no part in its answer."""

from collections.abc import Set

from haversack.estimate import EstimateRequest
from haversack_server.estimate.asked import unanswered
from haversack_server.memory.chain import Chain
from haversack_server.memory.unread import At, unread
from haversack_server.memory.unused import unused


def ignored(
    request: EstimateRequest, chain: Chain, *, training: Set[str], parallelism: Set[str]
) -> tuple[str, ...]:
    """Name what a subject that is no described model does not use.

    ``training`` and ``parallelism`` are the settings of these that it uses; ``chain`` has its
    states, and blocks if there are any.
    """
    measured = ["measurements: a described model (documents) is needed to compare with"]
    used = {f"training.{name}" for name in training}
    used |= {f"parallelism.{name}" for name in parallelism}
    return (
        *unused(request, training=training, parallelism=parallelism),
        *unread(At(request, chain), of=used),
        *(measured if request.measurements else ()),
        *unanswered(request),
    )
