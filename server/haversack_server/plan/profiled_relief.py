"""What would lower the floor of a profile's plan, so that a budget below it can be met.

A profile is of one batch as it ran, so what may change is what stands beside it: constraints,
microbatches, the optimizer and the ranks. Knows no rung: each floor is asked for.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from haversack.errors import DeadlineError, InvalidRequestError, NotSupportedError
from haversack.parallelism import Parallelism, Sharding
from haversack.plan import PlanConstraints, PlanRequest
from haversack.run import Advice, Optimizer, Training
from haversack.spread import spread_of
from haversack_server.memory.changes import Change
from haversack_server.plan.profiled_optimizer import moments_bytes

Floor = Callable[[PlanRequest], int]


def relief(request: PlanRequest, floor_bytes: int, floor: Floor) -> tuple[Advice, ...]:
    """Give the changes that lower the floor, the largest first; each floor is computed anew."""
    found = []
    for change in (*_looser(request), *_smaller(request), *_more_ranks(request)):
        try:
            delta = floor(change.run) - floor_bytes
        except (InvalidRequestError, NotSupportedError):
            continue  # not open to this profile, such as shards of a weight that two blocks share
        except DeadlineError:
            continue  # not settled; the answer itself is, and stays
        if delta < 0:
            found.append(Advice(change=change.words, delta_bytes=delta, cost=change.cost))
    return tuple(sorted(found, key=lambda each: each.delta_bytes))


def _looser(request: PlanRequest) -> Iterator[Change[PlanRequest]]:
    """Yield the request without each of its constraints."""
    given = request.constraints or PlanConstraints()
    looser = (
        ("without equal treatment", replace(given, equal_treatment=False), "equal blocks differ"),
        ("with segments", replace(given, without_segments=False), ""),
        ("nothing that must be saved", replace(given, must_save=()), "those blocks may run twice"),
        ("nothing that must be recomputed", replace(given, must_recompute=()), ""),
    )
    for words, constraints, cost in looser:
        if constraints != given:
            yield Change(words, cost, replace(request, constraints=constraints))


def _smaller(request: PlanRequest) -> Iterator[Change[PlanRequest]]:
    """Yield one microbatch a step, and an optimizer that keeps less."""
    training, accumulation = request.training, request.training.accumulation or 1
    if accumulation > 1:
        cost = f"a global batch {accumulation} times smaller"
        alone = replace(request, training=replace(training, accumulation=1))
        yield Change("accumulation 1", cost, alone)
    light = replace(training, optimizer=Optimizer.SGD_MOMENTUM)
    if _moments(request, light) < _moments(request, training):
        cost = "another optimizer is another training run"
        yield Change("optimizer sgd_momentum", cost, replace(request, training=light))


def _moments(request: PlanRequest, training: Training) -> int:
    assert request.profile is not None
    return moments_bytes(training, request.profile)[0]


def _more_ranks(request: PlanRequest) -> Iterator[Change[PlanRequest]]:
    """Yield model states sharded, over the ranks that are there, or over twice as many."""
    spread, given = spread_of(request.parallelism), request.parallelism
    gathers = "parameters are gathered in forward and in backward"
    if spread.is_replicated:
        yield _sharded(request, Parallelism(), spread.ranks, gathers)
    elif spread.ranks == 1:
        yield _sharded(request, Parallelism(), 2, f"twice the devices; {gathers}")
    elif given.dp_shard is None and given.world_size is not None:
        yield _sharded(request, given, 2 * spread.ranks, "twice the devices")


def _sharded(
    request: PlanRequest, parallelism: Parallelism, ranks: int, cost: str
) -> Change[PlanRequest]:
    wider = replace(parallelism, world_size=ranks, sharding=Sharding.FSDP2)
    return Change(f"{ranks} GPUs under FSDP2", cost, replace(request, parallelism=wider))
