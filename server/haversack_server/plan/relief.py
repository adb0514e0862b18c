"""What would lower the floor of a plan, so that a budget below it can be met."""

from itertools import chain

from haversack.errors import InvalidRequestError
from haversack.plan import PlanRequest
from haversack.run import Advice
from haversack_server.memory.changes import more_sharding, smaller_steps
from haversack_server.memory.choices import whole_layers
from haversack_server.memory.model_run import model_run
from haversack_server.plan import ceiling
from haversack_server.plan.constraints import constrained
from haversack_server.plan.solving import Cancel


def relief(request: PlanRequest, floor_bytes: int, cancel: Cancel = None) -> tuple[Advice, ...]:
    """Give the changes that lower the floor, the largest first; each floor is computed anew."""
    found = []
    for change in chain(smaller_steps(request), more_sharding(request)):
        try:
            model = whole_layers(model_run(change.run).chain)
            model = constrained(model, request.constraints)
        except InvalidRequestError:
            continue  # this change is not open to this run, such as a tp that divides no heads
        delta = ceiling.floor(ceiling.tables(model), cancel).peak_bytes - floor_bytes
        if delta < 0:
            found.append(Advice(change=change.words, delta_bytes=delta, cost=change.cost))
    return tuple(sorted(found, key=lambda each: each.delta_bytes))
