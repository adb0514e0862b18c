"""The run that a sharded one is compared with: the ranks' workloads, each by itself on no rank.

Each rank's workload has the inputs that its own seed makes, and the parameters of rank 0. What a
sharded step must give is then each rank's outputs, and the mean of all gradients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from haversack.torch import Workload
from haversack.verify import LARGEST_SEED, Facet, VerifyRequest, VerifySchedule
from haversack_server.verify.comparison import Row
from haversack_server.verify.outcome import Outcome
from haversack_server.worker import blocks, compare, prepare
from haversack_server.worker.errors import BadWorkloadError
from haversack_server.worker.leaves import find_leaves
from haversack_server.worker.regions import Regions, intercept
from haversack_server.worker.spread import trained
from haversack_server.worker.step import Step
from haversack_server.worker.values import flatten

STAGE = "unsharded"
_OF_RANK = (Facet.OUTPUTS.name, Facet.INPUT_GRADIENTS.name)
_WHOLE = Facet.PARAMETER_GRADIENTS.name
Values = Mapping[str, Any]


def of_rank(request: VerifyRequest, rank: int) -> VerifyRequest:
    """Give the request as a rank runs it: with a seed, and a GPU if any, of its own."""
    device = f"cuda:{rank}" if request.device.startswith("cuda") else request.device
    return replace(request, seed=(request.seed + rank) % (LARGEST_SEED + 1), device=device)


def take_parameters(workload: Workload, first: Workload) -> None:
    """Give a rank's model the parameters and buffers of rank 0. Raises BadWorkloadError."""
    own, given = _tensors(workload.model), _tensors(first.model)
    if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in given.items()}:
        raise BadWorkloadError(
            "the factory builds another model with another seed, so that ranks cannot have inputs "
            "of their own; make parameters of equal names and shapes"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(given[name])


def _tensors(model: Any) -> dict[str, torch.Tensor]:
    assert isinstance(model, nn.Module)
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def have_equal_inputs(workloads: Sequence[Workload]) -> bool:
    """Whether every rank would compute the same, so that a missing reduction stays unseen."""
    first, *others = (flatten((w.args, dict(w.kwargs)), "given") for w in workloads)
    return all(not any(compare.rows(Facet.OUTPUTS, first, other)) for other in others)


def run_unsharded(
    workload: Workload,
    rank: int,
    request: VerifyRequest,
    file: str,
    take_mean: Callable[[], Values] | None = None,
) -> Outcome:
    """Run a rank's step plainly, in a process of its own, and leave in a file what it gives.

    Where an optimizer steps, ``take_mean`` gives the gradients that it steps by.
    """
    workload, _ = prepare.prepare(workload, of_rank(request, rank))
    regions = Regions(names=blocks.module_names(workload.model), direct=True)
    intercept(regions)
    leaves = find_leaves(workload)
    step = Step(workload, request.schedule or VerifySchedule.ONE_MICROBATCH)
    if take_mean is not None:
        step.before_optimizer = partial(_put_gradients, workload.model, take_mean)
    prepare.pin(of_rank(request, rank))
    step.run()
    if step.raised is None:
        values = leaves.values(step.outputs, step.losses)
        gradients = {name: each.grad for name, each in trained(workload.model).items()}
        kept = {name: values[name] for name in _OF_RANK}
        torch.save(kept | {_WHOLE: gradients}, f"{file}.{rank}")
    return Outcome(stage=STAGE, raised=step.raised)


def read_values(file: str) -> dict[str, Any]:
    """Read what a run left in a file of the job; of several GPUs to one place, to be compared."""
    found: dict[str, Any] = torch.load(file, weights_only=True, map_location="cpu")
    return found


def _put_gradients(model: Any, take_mean: Callable[[], Values]) -> None:
    gradients = take_mean()
    for name, parameter in trained(model).items():
        gradient = gradients[name]
        parameter.grad = None if gradient is None else gradient.to(parameter.device)


def mean_of_ranks(file: str, size: int) -> Values:
    """Give the mean of the gradients of all ranks, by the names of their parameters."""
    ranks = [read_values(f"{file}.{rank}")[_WHOLE] for rank in range(size)]
    return {name: _mean_of([each[name] for each in ranks]) for name in sorted(ranks[0])}


def _mean_of(gradients: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    given = [each for each in gradients if each is not None]
    if not given:
        return None
    # In double precision: the sharded run adds in an order of its own.
    total = torch.stack([each.to(torch.float64) for each in given]).sum(0) / len(gradients)
    return total.to(given[0].dtype)


def against_unsharded(
    rank: int, size: int, own: Mapping[str, Values], gradients: Values, file: str
) -> tuple[list[Row], dict[str, int]]:
    """Compare a rank's plain sharded run; rank 0 answers for the gradients of all.

    Gives rows that differ, and by the name of its facet how many values were compared.
    """
    expected = read_values(f"{file}.{rank}")
    pairs = {name: (expected[name], own[name]) for name in _OF_RANK}
    if rank == 0:
        pairs[_WHOLE] = (mean_of_ranks(file, size), gradients)
    rows = [row for name, pair in pairs.items() for row in compare.rows(Facet[name], *pair)]
    return rows, {name: len(found) for name, (_, found) in pairs.items()}
