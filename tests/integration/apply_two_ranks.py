"""One rank of two: steps under DDP and FSDP2 with and without a plan, which must be equal.

Run by test_apply_models.py, as a program of gloo_ranks.py.
"""

import itertools
from typing import Any

import torch
import torch.distributed as dist
from tests.integration.gloo_ranks import WIDTH, Dropping, be_rank
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from haversack.plan import Plan
from haversack.run import BlockAction
from haversack.torch import apply
from haversack.torch.blocks import fingerprint

CUT = "selective aten.tanh.default:0 without aten.addmm.default:0"


def wrapped(model: Dropping, *, shards: bool) -> Any:
    """Spread a model over both ranks."""
    if not shards:
        return DistributedDataParallel(model)
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def step(model: nn.Module) -> list[Tensor]:
    """Run one step; every rank has an input of its own."""
    torch.manual_seed(1 + dist.get_rank())
    loss: Any = model(torch.randn(4, WIDTH)).square().mean()
    loss.backward()
    local: list[Any] = [
        getattr(each.grad, "_local_tensor", each.grad) for each in model.parameters()
    ]
    model.zero_grad()
    return [loss.detach(), *local]


def equal(*, shards: bool) -> bool:
    """Compare a step with a plan and one without."""
    torch.manual_seed(0)
    model = Dropping(3)
    options = itertools.cycle(("recompute", "selective aten.addmm.default:0", CUT))
    plan = Plan(
        actions=tuple(
            BlockAction(block=f"layers.{place}", option=option, fingerprint=fingerprint(layer))
            for place, (layer, option) in enumerate(zip(model.layers, options, strict=False))
        )
    )
    spread = wrapped(model, shards=shards)
    plain = step(spread)
    with apply(spread, plan):
        planned = step(spread)
    return all(map(torch.equal, planned, plain))


def compare() -> str:
    """Compare under both."""
    return f"DDP {equal(shards=False)}, FSDP2 {equal(shards=True)}"


if __name__ == "__main__":
    be_rank(compare)
