"""Ranks of a real machine: does recomputation change a step under DDP or fully_shard?

torchrun --standalone --nproc-per-node 8 examples/verify_ranks.py --shard fsdp2

Each rank has a GPU and NCCL where there are GPUs, else the CPU and gloo. Every rank runs a step
plainly, again, and with every block recomputed; rank 0 prints a line of JSON for each, to be
recorded. Ends with an error where a recomputed step is not the plain one. What that proves is told
in docs/verify-multi-gpu.md. Put your own model in the place of ``build``.
"""

import argparse
import json
import os
import random
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from haversack.plan import Plan
from haversack.run import BlockAction
from haversack.torch import apply

WIDTH, BLOCKS, ROWS, SEED = 256, 6, 64, 0


class Model(nn.Module):
    """Blocks with dropout: what they draw must be drawn again by a recomputation."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(WIDTH),
                nn.Linear(WIDTH, 4 * WIDTH),
                nn.GELU(),
                nn.Dropout(0.1),
                nn.Linear(4 * WIDTH, WIDTH),
            )
            for _ in range(BLOCKS)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Add every block to what came before it."""
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return hidden


def build(device: torch.device) -> Model:
    """Build the model, alike on every rank."""
    torch.manual_seed(SEED)
    return Model().to(device)


def spread(model: Model, shard: str, device: torch.device) -> Any:
    """Spread the model over all ranks."""
    if shard == "ddp":
        return DistributedDataParallel(
            model, device_ids=[device] if device.type == "cuda" else None
        )
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def step(model: Any, device: torch.device) -> tuple[list[Tensor], int | None]:
    """Run one step on this rank's own input; give loss, local gradients, and a GPU's peak."""
    torch.manual_seed(SEED + 1 + dist.get_rank())
    random.seed(SEED + 1 + dist.get_rank())  # for a model that draws from it
    hidden = torch.randn(ROWS, WIDTH, device=device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    loss = model(hidden).square().mean()
    loss.backward()
    peak_bytes = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    gradients = [getattr(each.grad, "_local_tensor", each.grad) for each in model.parameters()]
    model.zero_grad(set_to_none=True)
    return [loss.detach(), *gradients], peak_bytes


def largest_difference(some: list[Tensor], others: list[Tensor]) -> float:
    """Give the largest difference of two steps; 0 where they are equal bit for bit."""
    pairs = zip(some, others, strict=True)
    return max(0.0 if torch.equal(a, b) else float((a - b).abs().max()) for a, b in pairs)


def compared(shard: str, device: torch.device) -> dict[str, Any]:
    """Compare a plain step with a second one, and with one that recomputes every block."""
    model = build(device)
    plan = Plan(
        actions=tuple(
            BlockAction(block=f"layers.{place}", option="recompute") for place in range(BLOCKS)
        )
    )
    whole = spread(model, shard, device)
    step(whole, device)  # the first one makes buckets, communicators and caches
    plain, plain_peak = step(whole, device)
    again, _ = step(whole, device)
    with apply(whole, plan):
        recomputed, recomputed_peak = step(whole, device)
    return {
        "noise": largest_difference(again, plain),
        "difference": largest_difference(recomputed, plain),
        "plain_peak_bytes": plain_peak,
        "recomputed_peak_bytes": recomputed_peak,
    }


def main() -> int:
    """Be one rank; 1 where a recomputed step differs by more than twice what two plain ones do."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shard", choices=["ddp", "fsdp2"], default="fsdp2")
    shard = parser.parse_args().shard
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    found = {
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "shard": shard,
        "backend": dist.get_backend(),
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "torch": torch.__version__,
        **compared(shard, device),
    }
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, found)
    for each in ranks if dist.get_rank() == 0 else ():
        print(json.dumps(each))
    dist.destroy_process_group()
    return int(any(each["difference"] > 2 * each["noise"] for each in ranks))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # gloo's threads may still hold tensors, and to drop one while Python ends aborts the process
    os._exit(status)
