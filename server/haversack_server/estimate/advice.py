"""Changes that lower the peak, each with what it saves.

Every change is answered by laying the changed run onto the timeline again, never by a rule of
thumb.
"""

from haversack.estimate import EstimateRequest
from haversack.run import Advice
from haversack_server.estimate.peaks import Peaks
from haversack_server.memory.changes import changes
from haversack_server.memory.stopping import Stop, go_on


def advice(request: EstimateRequest, peaks: Peaks, stop: Stop) -> tuple[Advice, ...]:
    """Give the changes that lower the expected peak, the largest saving first."""
    found = []
    for change in changes(request):
        go_on(stop)
        changed = peaks.of(change.run)
        if changed is None:
            continue
        delta = changed.expected_bytes - peaks.base.expected_bytes
        if delta < 0:
            found.append(Advice(change=change.words, delta_bytes=delta, cost=change.cost))
    return tuple(sorted(found, key=lambda each: each.delta_bytes))
