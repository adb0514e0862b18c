"""What would lower the floor of a plan, so that a budget below it can be met."""

from itertools import chain

from haversack.errors import InvalidRequestError
from haversack.plan import PlanRequest
from haversack.run import Advice
from haversack_server.memory.changes import more_sharding, smaller_steps
from haversack_server.memory.model_run import model_run
from haversack_server.plan.alike_stages import alike
from haversack_server.plan.solving import Solving
from haversack_server.plan.stages import highest_floor, stages_of


def relief(request: PlanRequest, floor_bytes: int, solving: Solving) -> tuple[Advice, ...]:
    """Give the changes that lower the floor, the largest first; each floor is computed anew."""
    found = []
    for change in chain(smaller_steps(request), more_sharding(request)):
        try:
            delta = _floor(change.run, solving) - floor_bytes
        except InvalidRequestError:
            continue  # this change is not open to this run, such as a tp that divides no heads
        if delta < 0:
            found.append(Advice(change=change.words, delta_bytes=delta, cost=change.cost))
    return tuple(sorted(found, key=lambda each: each.delta_bytes))


def _floor(request: PlanRequest, solving: Solving) -> int:
    stages = stages_of(request, model_run(request), solving)
    if request.constraints is not None and request.constraints.equal_treatment:
        return alike(stages).floor().peak_bytes
    return highest_floor(stages)[0]
