"""One rank of two under FSDP2: real steps with and without a plan, and the peak of the planned one.

Run by test_sharded_plans.py, as a program: ``sharded_two_ranks.py RANK FILE PLAN``. Prints what was
equal, and the highest bytes of forward and backward with what stands beside them.
"""

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from tests.integration.small_gpt import BLOCKS, workload_of
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from haversack import read_plan
from haversack.torch import apply
from haversack.torch.loss import loss_of
from haversack.torch.optimizers import storage_bytes
from haversack.torch.sharding import own_part
from haversack_server.worker.memory import LiveStorages


def run(model: nn.Module, workload: Any) -> list[Tensor]:
    """Run forward and backward; every rank draws a dropout of its own."""
    torch.manual_seed(1 + dist.get_rank())
    output = model(*workload.args)
    loss = loss_of(workload, output).tensor
    torch.autograd.backward(loss)
    return [loss.detach(), *(own_part(each.grad) for each in model.parameters())]


def measured(model: nn.Module, workload: Any, optimizer: torch.optim.Optimizer) -> int:
    """Take a step that makes the optimizer's state, and follow the next."""
    live: Any = LiveStorages(resized=True)
    with live:  # what is gathered into is made once, and filled again
        run(model, workload)
    optimizer.step()
    optimizer.zero_grad()
    state = [list(map(own_part, each.values())) for each in optimizer.state.values()]
    parameters = list(map(own_part, model.parameters()))
    standing = storage_bytes([parameters, list(model.buffers()), workload.args, state])
    live.peak_bytes = 0
    with live:
        run(model, workload)
    return standing + int(live.peak_bytes)


def main(plan_file: str) -> None:
    """Compare, then measure."""
    workload = workload_of()
    model: Any = workload.model
    for place in range(BLOCKS):
        fully_shard(model.h[place])
    fully_shard(model)
    plain = run(model, workload)
    model.zero_grad()
    with apply(model, read_plan(plan_file)):
        planned = run(model, workload)
        model.zero_grad()
        optimizer = torch.optim.AdamW(model.parameters())
        peak_bytes = measured(model, workload, optimizer)
    print(all(map(torch.equal, planned, plain)), peak_bytes)


if __name__ == "__main__":
    rank, file = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    main(sys.argv[3])
    dist.destroy_process_group()
    sys.stdout.flush()
    # gloo's threads may still hold tensors, and to drop one while Python ends aborts the process
    os._exit(0)
