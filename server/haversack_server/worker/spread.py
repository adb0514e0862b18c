"""A rank of a real process group, and a model that is spread over all of them.

Ranks meet in a file of the job's scratch folder; their collectives go over the loopback of the
job's own network namespace (gloo on the CPU), or between GPUs (NCCL). Loads torch.distributed,
which takes seconds: a job imports this before it forks ranks.
"""

import datetime
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FileStore
from torch.nn.parallel import DistributedDataParallel

from haversack.errors import HaversackError
from haversack.parallelism import Parallelism, Sharding
from haversack.plan import Plan
from haversack.torch import Workload
from haversack.torch.blocks import named_blocks
from haversack.torch.casting import types_of
from haversack.torch.sharding import Types, own_part, shard
from haversack.verify import VerifyRequest, VerifyWorld
from haversack_server.verify.shardable import as_planned
from haversack_server.worker.accumulation import Accumulation, ReducedOnce, Unreduced
from haversack_server.worker.blocks import detected_blocks
from haversack_server.worker.environment import BACKENDS
from haversack_server.worker.errors import BadWorkloadError
from haversack_server.worker.leaves import Leaves

ROOT = ""


class UnreachableError(Exception):
    """The ranks cannot reach each other."""


def join(file: str, rank: int, size: int, device: str, timeout_s: float) -> None:
    """Be a rank of a group that meets in ``file``. Raises UnreachableError.

    On ``cuda`` each rank has the GPU of its own number.
    """
    if device == "cpu":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    else:
        torch.cuda.set_device(rank)
    try:
        dist.init_process_group(
            BACKENDS[device],
            store=FileStore(file, size),
            rank=rank,
            world_size=size,
            timeout=datetime.timedelta(seconds=timeout_s),
        )
        dist.barrier()
    except RuntimeError as error:
        said = str(error).strip().partition("\n")[0]
        raise UnreachableError(
            f"ranks cannot reach each other over {BACKENDS[device]}: {said[:300]}; on the CPU they "
            "need a loopback, which a job has where its kernel lets it have a network namespace"
        ) from error


def met() -> bool:
    """Wait until every rank is here; false where one has gone."""
    try:
        dist.barrier()
    except RuntimeError:
        return False
    return True


def check_spreadable(workload: Workload) -> nn.Module:
    """Give the module that can be spread. Raises BadWorkloadError."""
    model = workload.model
    if not isinstance(model, nn.Module):
        raise BadWorkloadError(
            f"a sharded job divides the parameters of a module, but the model is a "
            f"{type(model).__name__}; a torch.nn.Module would do"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise BadWorkloadError(
            "a sharded job reduces gradients, but no parameter of the model asks for one"
        )
    return model


@dataclass(frozen=True, slots=True)
class Way:
    """How ranks share a model: their number and mesh, types, and the blocks that are units."""

    parallelism: Parallelism
    types: Types = (None, None)
    units: tuple[str, ...] = ()

    @property
    def is_sharded(self) -> bool:
        """Whether it is ``fully_shard``, and not DistributedDataParallel."""
        return self.parallelism.sharding is Sharding.FSDP2

    @property
    def computes_otherwise(self) -> bool:
        """Whether ranks compute, or reduce, in other types than one process does."""
        return self.types != (None, None)


def way_of(workload: Workload, request: VerifyRequest, world: VerifyWorld) -> Way:
    """Say how the ranks of a job share its model: as its plan has it, or each block a unit.

    Raises BadWorkloadError.
    """
    model, planned = check_spreadable(workload), as_planned(request)
    if planned is None or request.plan is None:
        return default_way(model, world)
    plan = request.plan
    try:
        types = types_of(model, Plan(precision=plan.precision, reduce_type=plan.reduce_type))
        names = [action.block for action in plan.actions if not action.block.startswith("(")]
        return Way(planned, types, _units(named_blocks(model, names, "plan.actions")))
    except HaversackError as refused:
        raise BadWorkloadError(f"the plan's ranks cannot be had here: {refused}") from refused


def default_way(model: nn.Module, world: VerifyWorld) -> Way:
    """Share as a job without a plan does: ``fully_shard`` of each block, or whole replicas."""
    if world.sharding is not Sharding.FSDP2:
        return Way(Parallelism(world_size=world.size))
    sharded = Parallelism(world_size=world.size, sharding=Sharding.FSDP2)
    return Way(sharded, units=_units(detected_blocks(model)))


def _units(blocks: Mapping[str, nn.Module]) -> tuple[str, ...]:
    return tuple(name for name, block in blocks.items() if any(True for _ in block.parameters()))


def spread(workload: Workload, way: Way, device: str) -> Workload:
    """Give the workload with its model over all ranks of the group. Raises BadWorkloadError."""
    model = check_spreadable(workload)
    try:
        if way.is_sharded:
            before = dict(model.named_parameters())
            blocks = [model.get_submodule(name) for name in way.units]
            shard(model, blocks, way.parallelism, way.types, device)
            _step_shards(workload.optimizer, before, dict(model.named_parameters()))
            return workload
        views = bool(way.parallelism.gradient_as_bucket_view)
        replica = DistributedDataParallel(model, gradient_as_bucket_view=views)
        return with_model(workload, replica)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        said = str(error).strip().partition("\n")[0]
        raise BadWorkloadError(f"the model cannot be spread over ranks: {said[:400]}") from error


def accumulation_of(workload: Workload) -> Accumulation:
    """Say what a spread workload's model must be told of two microbatches."""
    model = workload.model
    return ReducedOnce(model) if isinstance(model, DistributedDataParallel) else Unreduced()


def _step_shards(
    optimizer: Any, before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]
) -> None:
    """Have an optimizer step the shards of the parameters that it was made with."""
    if optimizer is None:
        return
    if optimizer.state:
        raise BadWorkloadError(
            "the workload's optimizer has a state already, which fully_shard does not divide; "
            "return it as it is before its first step"
        )
    shards = {id(parameter): after[name] for name, parameter in before.items()}
    for group in optimizer.param_groups:
        group["params"] = [shards.get(id(each), each) for each in group["params"]]


def with_model(workload: Workload, model: Any) -> Workload:
    """Give the workload with another model in its place."""
    return Workload(
        model=model,
        args=workload.args,
        kwargs=workload.kwargs,
        loss=workload.loss,
        regions=workload.regions,
        optimizer=workload.optimizer,
        between_forward_and_backward=workload.between_forward_and_backward,
    )


def of_shards(leaves: Leaves, model: nn.Module) -> Leaves:
    """Give the leaves with the parameters that the model has now, under the names of before."""
    return leaves.standing({**leaves.parameters, **trained(model)})


def trained(model: Any) -> dict[str, torch.Tensor]:
    """Name the parameters of a module that ask for a gradient."""
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def whole_gradients(model: nn.Module) -> Mapping[str, torch.Tensor | None]:
    """Gather the gradients of all parameters; every rank must ask for them."""
    return {name: _whole(parameter.grad) for name, parameter in trained(model).items()}


def _whole(gradient: Any) -> torch.Tensor | None:
    is_sharded = hasattr(gradient, "full_tensor")
    gathered: torch.Tensor | None = gradient.full_tensor() if is_sharded else gradient
    return None if gathered is None else gathered.cpu()


def held_bytes(model: nn.Module) -> int:
    """Count the bytes of parameters that this rank holds: of a sharded one, its shard."""
    local: Iterable[torch.Tensor] = map(own_part, model.parameters())
    return sum(each.numel() * each.element_size() for each in local)
