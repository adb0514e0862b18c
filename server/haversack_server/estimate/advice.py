"""What would make a run fit: changes with what they save, and the limits of the ladder of sizes.

Every change is answered by laying the changed run onto the timeline again, never by a rule of
thumb.
"""

from dataclasses import replace

from haversack.errors import InvalidRequestError
from haversack.estimate import EstimateRequest
from haversack.run import Advice
from haversack_server.estimate.verdict import Limit
from haversack_server.memory.changes import changes
from haversack_server.memory.degrees import resolve
from haversack_server.memory.margins import peak_of
from haversack_server.memory.model_run import model_run
from haversack_server.memory.stopping import Stop, go_on
from haversack_server.memory.timeline import timeline

MOST_GPUS = 4096
MOST_MICROBATCH = 4096


def advice(request: EstimateRequest, expected_bytes: int, stop: Stop) -> tuple[Advice, ...]:
    """Give the changes that lower the peak, the largest saving first."""
    found = []
    for change in changes(request):
        go_on(stop)
        try:
            delta = _expected_peak(change.run) - expected_bytes
        except InvalidRequestError:
            continue  # this change is not open to this run, such as a tp that divides no heads
        if delta < 0:
            found.append(Advice(change=change.words, delta_bytes=delta, cost=change.cost))
    return tuple(sorted(found, key=lambda each: each.delta_bytes))


def _expected_peak(request: EstimateRequest) -> int:
    run = model_run(request)
    return timeline(run.chain, run.choice(request.training)).peak.allocated_bytes


def _fits(request: EstimateRequest, limit: Limit, stop: Stop) -> bool:
    go_on(stop)
    run = model_run(request)
    line = timeline(run.chain, run.choice(request.training))
    peak = peak_of(line.peak.allocated_bytes, run.profile, run.degrees)
    judged = peak.device if limit.of_device else peak.allocated
    return judged.high_bytes <= limit.limit_bytes


def largest_microbatch(request: EstimateRequest, limit: Limit | None, stop: Stop) -> int | None:
    """Find the largest microbatch that fits, up to 4,096; 0 if none does, None if not asked."""
    if limit is None:
        return None

    def fits(microbatch: int) -> bool:
        training = replace(request.training, microbatch=microbatch)
        return _fits(replace(request, training=training), limit, stop)

    above = 1
    while above <= MOST_MICROBATCH and fits(above):
        above *= 2
    below = above // 2
    while above - below > 1 and below:
        middle = (below + above) // 2
        below, above = (middle, above) if fits(middle) else (below, middle)
    return min(below, MOST_MICROBATCH)


def fewest_gpus(request: EstimateRequest, limit: Limit | None, stop: Stop) -> int | None:
    """Find the fewest GPUs that fit: the ranks of tp times a power of two that shard."""
    parallelism = request.parallelism
    fixed = parallelism.dp_shard is not None or parallelism.dp_replicate is not None
    if limit is None or fixed:
        return None
    ranks = resolve(replace(parallelism, world_size=None)).world_size
    while ranks <= MOST_GPUS:
        fewer = replace(parallelism, world_size=ranks)
        if _fits(replace(request, parallelism=fewer), limit, stop):
            return ranks
        ranks *= 2
    return None
