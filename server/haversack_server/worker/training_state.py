"""The state of a training run as it is, facet by facet, whatever the training keeps of it.

Read from the live model, optimizer, schedule, data and generators, so that what ``save`` forgets is
seen. Sharded tensors are gathered: every rank must ask. Draws no random number, and makes no state
that is not there.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from haversack.parallelism import Sharding
from haversack.torch import TrainingRun
from haversack.verify import Facet
from haversack_server.worker import rng
from haversack_server.worker.values import Values, flatten

GATHERED = (Facet.PARAMETERS, Facet.OPTIMIZER_STATE)
OF_EACH_RANK = (
    Facet.BUFFERS,
    Facet.RNG,
    Facet.SCHEDULE,
    Facet.SAMPLER_POSITION,
    Facet.EXTRA_STATE,
)


def facets_of(rank: int, sharding: Sharding) -> tuple[Facet, ...]:
    """Name what a rank answers for: the first for what is gathered, each for what is its own."""
    if rank == 0:
        return (*OF_EACH_RANK, *GATHERED)
    if sharding is Sharding.FSDP2:
        return OF_EACH_RANK
    # DistributedDataParallel gives every rank the buffers of rank 0 before its next forward.
    return tuple(facet for facet in OF_EACH_RANK if facet is not Facet.BUFFERS)


def state_of(run: TrainingRun) -> dict[str, Values]:
    """Name everything that a run's next step stands on, by the names of facets."""
    model = run.training.model
    extras: Values = {}
    for name, extra in run.extras.items():
        extras |= _copied(flatten(extra.state_dict(), name))
    schedule = {} if run.scheduler is None else flatten(run.scheduler.state_dict(), "scheduler")
    return {
        Facet.PARAMETERS.name: {name: whole(each) for name, each in model.named_parameters()},
        Facet.BUFFERS.name: {name: whole(each) for name, each in model.named_buffers()},
        Facet.OPTIMIZER_STATE.name: dict(_of_optimizer(run)),
        Facet.SCHEDULE.name: _copied(schedule),
        Facet.RNG.name: dict(rng.default_states()),
        Facet.SAMPLER_POSITION.name: _copied(flatten(run.data.state_dict(), "data")),
        Facet.EXTRA_STATE.name: extras,
    }


def whole(value: Any) -> Any:
    """Give a copy of a tensor, gathered where it is sharded; everything else by its spelling."""
    if not isinstance(value, torch.Tensor):
        return value if value is None else repr(value)
    return _gathered(value).detach().clone()


def _gathered(value: Any) -> torch.Tensor:
    gathered: torch.Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return gathered


def _copied(values: Values) -> Values:
    return {
        name: whole(each) if isinstance(each, torch.Tensor) else each
        for name, each in values.items()
    }


def _of_optimizer(run: TrainingRun) -> Iterator[tuple[str, Any]]:
    """Name settings of groups, and what the optimizer holds for each parameter."""
    for place, group in enumerate(run.optimizer.param_groups):
        for key in sorted(group.keys() - {"params"}):
            # Item by item: what comes from another rank has lists where tuples were.
            yield from _copied(flatten(group[key], f"group {place} {key}")).items()
    for name, parameter in run.training.model.named_parameters():
        held = run.optimizer.state.get(parameter, {})
        for key in sorted(held):
            yield f"{name} {key}", whole(held[key])


def learning_rates(run: TrainingRun) -> str:
    """Spell the learning rates of all groups."""
    return repr([float(group["lr"]) for group in run.optimizer.param_groups if "lr" in group])


def mean_over_ranks(loss: torch.Tensor) -> torch.Tensor:
    """Give the mean of a scalar over all ranks, in its own dtype."""
    own = _gathered(loss)
    # In double precision: how ranks divide a batch shall not show in the mean itself.
    total = own.to(torch.float64).reshape(1)
    dist.all_reduce(total)
    return (total / dist.get_world_size()).to(own.dtype)[0]


def global_batch(batch: Sequence[Any]) -> str:
    """Digest the samples of all ranks' batches; how ranks share them makes no difference."""
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, _samples(batch))
    samples = sorted(each for part in gathered for each in part)
    return f"{len(samples)} samples with digest {rng.digest(' '.join(samples).encode())}"


def _samples(batch: Sequence[Any]) -> list[str]:
    """Digest each sample: the same row of all tensors; a batch without rows is one sample."""
    values = flatten(pytree.tree_map(_with_rows, tuple(batch)), "batch").values()
    tensors: list[Any] = [each for each in values if isinstance(each, torch.Tensor)]
    rows = {len(each) for each in tensors if each.dim()}
    if len(rows) != 1 or any(not each.dim() for each in tensors):
        return [_digest(tensors)]
    return [_digest([each[row] for each in tensors]) for row in range(rows.pop())]


def _with_rows(given: Any) -> Any:
    """Give an array of numbers as a tensor, which has rows too."""
    is_numbers = isinstance(given, numpy.ndarray) and given.dtype.kind in "biufc"
    return torch.from_numpy(given.copy()) if is_numbers else given


def _digest(tensors: Sequence[torch.Tensor]) -> str:
    parts = [each.detach().contiguous().reshape(-1).view(torch.uint8).numpy() for each in tensors]
    return rng.digest(b"".join(part.tobytes() for part in parts))
