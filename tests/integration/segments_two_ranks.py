"""One rank of two: steps under FSDP2 with and without segments, which must be equal to the bit.

Run by test_sharded_segments.py, as a program of gloo_ranks.py. Prints what was not as without
segments, and the collectives of one case.
"""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from tests.integration.gloo_ranks import WIDTH, Dropping, be_rank
from torch import Tensor
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from haversack.plan import Plan
from haversack.run import BlockAction
from haversack.torch import apply
from haversack_server.worker.collectives import Collectives

PATHS: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "a segment of two and one of three": ((1,), (1,), (2,), (2,), (2,)),
    "segments in a segment": ((1, 1, 1), (1, 1), (1,), (1, 2), (1,)),
}
TYPES = MixedPrecisionPolicy(
    param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32
)


def sharded(*, reshards: bool, types: MixedPrecisionPolicy, own_linear: bool) -> Any:
    """Make a model, the same each time; a unit of its own may be within a block's."""
    torch.manual_seed(0)
    model = Dropping(5)
    for layer in model.layers:
        if own_linear:
            inner: Any = next(layer.children())
            fully_shard(inner, mp_policy=replace(types, output_dtype=None))
        fully_shard(layer, mp_policy=types, reshard_after_forward=reshards)
    return fully_shard(model, mp_policy=types)


def steps(model: Any, *, apart: bool) -> tuple[list[Tensor], dict[str, int]]:
    """Take two steps of two microbatches, whose forwards both come first if not ``apart``."""
    torch.manual_seed(1 + dist.get_rank())
    given = [torch.randn(4, WIDTH, requires_grad=True) for _ in range(2)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    found: list[Any] = []
    with Collectives() as collectives:
        for _ in range(2):
            losses = []
            for each in given:
                losses.append(model(each).square().mean())
                if apart:
                    losses[-1].backward()
            for loss in losses if not apart else ():
                loss.backward()
            found += [loss.detach() for loss in losses]
            found += [each.grad.to_local().clone() for each in model.parameters()]
            optimizer.step()
            optimizer.zero_grad()
    found += [each.grad for each in given]
    found += [each.detach().to_local().clone() for each in model.parameters()]
    return found, dict(collectives.counts)


def compare() -> dict[str, int]:
    """Run every case without segments and with them; give the collectives of the first."""
    first: dict[str, int] = {}
    for reshards, own_linear in itertools.product((True, False), (False, True)):
        types = TYPES if own_linear == reshards else MixedPrecisionPolicy()
        case: dict[str, Any] = {"reshards": reshards, "types": types, "own_linear": own_linear}
        apart = own_linear != reshards
        plain, counts = steps(sharded(**case), apart=apart)
        first = first or counts
        for name, paths in PATHS.items():
            model = sharded(**case)
            with apply(model, planned(paths)):
                values, again = steps(model, apart=apart)
            if again != counts or not all(map(torch.equal, values, plain)):
                print(f"{name} differs: {case}, apart {apart}: {again}, without {counts}")
    return first


def planned(paths: tuple[tuple[int, ...], ...]) -> Plan:
    """Give the plan with such a path of segments for each block."""
    return Plan(
        actions=tuple(
            BlockAction(
                block=f"layers.{place}",
                option="recompute",
                segment=path[0],
                inner_segments=path[1:],
            )
            for place, path in enumerate(paths)
        )
    )


def main() -> list[int]:
    """Give the collectives of one case."""
    return sorted(compare().values())


if __name__ == "__main__":
    be_rank(main)
