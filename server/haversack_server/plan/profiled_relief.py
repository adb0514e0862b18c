"""What would lower the floor of a profile's plan, so that a budget below it can be met.

A profile is of one batch as it ran, so what may change is what stands beside it: constraints,
microbatches, the optimizer and the ranks, of which the fewest that are enough are advised. Knows no
rung: each floor is asked for.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from haversack.errors import DeadlineError, InvalidRequestError, NotSupportedError
from haversack.parallelism import MOST_RANKS, Parallelism, Sharding
from haversack.plan import PlanConstraints, PlanRequest
from haversack.run import Advice, Optimizer, Training
from haversack.spread import spread_of
from haversack_server.memory.changes import Change
from haversack_server.plan.profiled_optimizer import moments_bytes

Floor = Callable[[PlanRequest], int]
_TIMES = {2: "twice", 4: "four times", 8: "eight times"}
_GATHERS = "parameters are gathered in forward and in backward"


def relief(request: PlanRequest, floor_bytes: int, floor: Floor) -> tuple[Advice, ...]:
    """Give the changes that lower the floor, the largest first; each floor is computed anew."""
    found = []
    for change in (*_looser(request), *_smaller(request)):
        lower = _lowered(change, floor)
        if lower is not None:
            found.append(_advice(change, lower - floor_bytes))
    found += _more_ranks(request, floor_bytes, floor)
    helping = (each for each in found if each.delta_bytes < 0)
    return tuple(sorted(helping, key=lambda each: each.delta_bytes))


def _advice(change: Change[PlanRequest], delta_bytes: int) -> Advice:
    return Advice(change=change.words, delta_bytes=delta_bytes, cost=change.cost)


def _lowered(change: Change[PlanRequest], floor: Floor) -> int | None:
    """Give the floor of a changed request; None where it is not open, or not settled in time."""
    try:
        return floor(change.run)
    except (InvalidRequestError, NotSupportedError):
        return None  # not open to this profile, such as shards of a weight that two blocks share
    except DeadlineError:
        return None  # the answer itself is settled, and stays


def _looser(request: PlanRequest) -> Iterator[Change[PlanRequest]]:
    """Yield the request without each of its constraints."""
    given = request.constraints or PlanConstraints()
    looser = (
        ("without equal treatment", replace(given, equal_treatment=False), "equal blocks differ"),
        (
            "with segments",
            replace(given, without_segments=False),
            "several blocks run again as one",
        ),
        ("nothing that must be saved", replace(given, must_save=()), "those blocks may run twice"),
        (
            "nothing that must be recomputed",
            replace(given, must_recompute=()),
            "those blocks may be saved",
        ),
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


def _more_ranks(request: PlanRequest, floor_bytes: int, floor: Floor) -> list[Advice]:
    """Advise the fewest ranks to shard over that are enough; if none are, those that help most."""
    budget_bytes = request.budget.bytes if request.budget is not None else 0
    lowest, advised = floor_bytes, list[Advice]()
    for change in _wider(request):
        lower = _lowered(change, floor)
        if lower is None or lower >= lowest:
            continue
        lowest, advised = lower, [_advice(change, lower - floor_bytes)]
        if lower <= budget_bytes:
            return advised
    return [replace(each, cost=f"{each.cost}; not enough alone") for each in advised]


def _wider(request: PlanRequest) -> Iterator[Change[PlanRequest]]:
    """Yield model states sharded, over the ranks that are there, then over more and more."""
    spread, given = spread_of(request.parallelism), request.parallelism
    is_sharded = spread.shards > 1
    if is_sharded and (given.dp_shard is not None or given.world_size is None):
        return  # their number is named beside others, which would have to change too
    if spread.is_replicated:
        yield _sharded(request, Parallelism(), spread.ranks, _GATHERS)
    # On one rank nothing is sharded yet; how units are to be resharded is said all the same.
    parallelism = given if given.sharding is Sharding.FSDP2 else Parallelism()
    for factor, times in _TIMES.items():
        if factor * spread.ranks > MOST_RANKS:
            return
        cost = f"{times} the devices" if is_sharded else f"{times} the devices; {_GATHERS}"
        yield _sharded(request, parallelism, factor * spread.ranks, cost)


def _sharded(
    request: PlanRequest, parallelism: Parallelism, ranks: int, cost: str
) -> Change[PlanRequest]:
    wider = replace(parallelism, world_size=ranks, sharding=Sharding.FSDP2)
    return Change(f"{ranks} GPUs under FSDP2", cost, replace(request, parallelism=wider))
