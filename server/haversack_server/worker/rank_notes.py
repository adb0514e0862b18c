"""What a sharded job says of its ranks before they run: whose way they share a model, which inputs.

Decides nothing.
"""

from collections.abc import Iterator, Sequence

from haversack.spread import spread_in_words
from haversack.torch import Workload
from haversack.verify import VerifyRequest
from haversack_server.verify.shardable import as_planned
from haversack_server.worker import unsharded
from haversack_server.worker.spread import Way

OF_PROBES = "Memory, collectives and random sources of ranks come from further runs under probes"


def of_ranks(request: VerifyRequest, way: Way, workloads: Sequence[Workload]) -> Iterator[str]:
    """Say it in sentences."""
    yield from _of_plan(request, way)
    yield _of_inputs(workloads)
    yield OF_PROBES


def _of_plan(request: VerifyRequest, way: Way) -> Iterator[str]:
    plan = request.plan
    if plan is None or plan.parallelism is None:
        return
    words = spread_in_words(plan.parallelism)
    if as_planned(request) is None:
        said = "the job's share the model by default, and no step of it is measured"
        yield f"The plan is for {words}: {said}"
        return
    yield f"Ranks share the model as the plan has it: {words}"
    if way.computes_otherwise:
        yield "Nothing is compared with one process, which computes in other types"


def _of_inputs(workloads: Sequence[Workload]) -> str:
    if unsharded.have_equal_inputs(workloads):
        return (
            "The factory makes the same inputs with every seed, so all ranks have the same: "
            "gradients that are not reduced would not be seen"
        )
    return "Every rank has inputs of its own, which the factory made with its seed"
