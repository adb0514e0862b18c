"""One rank of several: real steps with and without a plan, and the peak of the planned one.

Run by test_sharded_plans.py, as a program of gloo_ranks.py, with a file of a plan, which says how
the ranks share the model. Prints what was equal, and the highest bytes of forward and backward
with what stands beside them.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from tests.integration.gloo_ranks import be_rank
from tests.integration.small_gpt import BLOCKS, workload_of
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from haversack import read_plan
from haversack.parallelism import Parallelism
from haversack.plan import Plan
from haversack.spread import spread_of
from haversack.torch import apply
from haversack.torch.casting import types_of
from haversack.torch.loss import loss_of
from haversack.torch.optimizers import storage_bytes
from haversack.torch.sharding import own_part
from haversack_server.worker.memory import LiveStorages

Forward = Callable[..., Any]
# gloo's threads may hold what they sent for a moment longer: the least of some steps is the step's.
STEPS = 3


def wrapped(model: Any, plan: Plan) -> Forward:
    """Share the model among the ranks."""
    parallelism = plan.parallelism or Parallelism()
    spread = spread_of(parallelism)
    if spread.is_replicated:
        return DistributedDataParallel(
            model, gradient_as_bucket_view=bool(parallelism.gradient_as_bucket_view)
        )
    mesh = init_device_mesh(
        "cpu", (spread.replicas, spread.shards), mesh_dim_names=("dp_replicate", "dp_shard")
    )
    types = types_of(model, plan)
    policy = MixedPrecisionPolicy(param_dtype=types[0], reduce_dtype=types[1])
    for unit in (*(model.h[place] for place in range(BLOCKS)), model):
        fully_shard(unit, mesh=mesh if spread.replicas > 1 else mesh["dp_shard"], mp_policy=policy)
    forward: Forward = model
    return forward


def run(model: nn.Module, forward: Forward, workload: Any) -> list[Tensor]:
    """Run forward and backward; every rank draws a dropout of its own."""
    torch.manual_seed(1 + dist.get_rank())
    output = forward(*workload.args)
    loss = loss_of(workload, output).tensor
    torch.autograd.backward(loss)
    gradients = [own_part(each.grad) for each in model.parameters()]
    return [loss.detach(), *(each.clone() for each in gradients)]


def measured(model: nn.Module, forward: Forward, workload: Any, live: Any) -> int:
    """Take a step that makes the optimizer's state, and follow the next."""
    optimizer = torch.optim.AdamW(model.parameters())
    with live:
        run(model, forward, workload)
    optimizer.step()
    optimizer.zero_grad()
    state = [list(map(own_part, each.values())) for each in optimizer.state.values()]
    parameters = list(map(own_part, model.parameters()))
    standing = storage_bytes([parameters, list(model.buffers()), workload.args, state])
    return standing + min(peak_bytes(model, forward, workload, live) for _ in range(STEPS))


def peak_bytes(model: nn.Module, forward: Forward, workload: Any, live: Any) -> int:
    """Run a forward and backward; gives the most bytes that were alive."""
    model.zero_grad()
    live.peak_bytes = 0
    with live:
        output = forward(*workload.args)
        torch.autograd.backward(loss_of(workload, output).tensor)
    return int(live.peak_bytes)


def main(plan_file: str) -> str:
    """Compare, then measure."""
    workload, plan = workload_of(), read_plan(plan_file)
    model: Any = workload.model
    parallelism = plan.parallelism or Parallelism()
    # From the first step on: buckets are made before it, what is gathered into is made in it.
    live: Any = LiveStorages(resized=True)
    with live if spread_of(parallelism).is_replicated else nullcontext():
        forward = wrapped(model, plan)
    with live:
        plain = run(model, forward, workload)
        model.zero_grad()
    with apply(model, plan):
        with live:
            planned = run(model, forward, workload)
            model.zero_grad()
        equal = all(map(torch.equal, planned, plain))
        del plain, planned
        return f"{equal} {measured(model, forward, workload, live)}"


if __name__ == "__main__":
    be_rank(main)
