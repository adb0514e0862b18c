"""Segments under ``fully_shard``: weights are there when blocks run again, and are taken apart.

One rank, whose collectives copy: shards are emptied and filled as on any number of ranks.
``tests/integration/test_sharded_segments.py`` has two that speak.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="segments run modules of PyTorch")

import torch
from tests.unit.torch.test_segments import PATHS, Net, in_segments, nested
from torch import Tensor, nn

from haversack.errors import NotSupportedError
from haversack.plan import Plan
from haversack.torch import apply
from haversack.torch.sharding import absent_ranks

# The blocks hand on a tensor that they were given, and nothing changes it in place.
pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
PLANS = {"in halves": in_segments(3, 3), "nested": nested(PATHS["deep"])}


@pytest.fixture
def shard() -> Iterator[Callable[..., Any]]:
    """Give what shards a model whose blocks, or pairs of them, are units."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    with absent_ranks(1):
        mesh = init_device_mesh("cpu", (1,))

        def sharded(model: Net, *, reshards: bool = True, together: int = 1) -> Any:
            for place in range(0, 6, together):
                unit: Any = list(model.layers)[place : place + together]
                fully_shard(unit, mesh=mesh, reshard_after_forward=reshards)
            return fully_shard(model, mesh=mesh)

        yield sharded


def step(model: nn.Module, given: Tensor) -> list[Tensor]:
    torch.manual_seed(3)
    loss = model(given)
    loss.backward()
    gradients: list[Any] = [each.grad for each in model.parameters()]
    model.zero_grad()
    return [
        loss.detach(),
        *(each.to_local().clone() if hasattr(each, "to_local") else each for each in gradients),
    ]


def made() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize(("reshards", "together"), [(True, 1), (False, 1), (True, 2)])
def test_weights_are_gathered_for_blocks_that_run_again(
    shard: Callable[..., Any], plan: Plan, reshards: bool, together: int
) -> None:
    given = torch.randn(8, 16)
    plain = step(made(), given)
    model = shard(made(), reshards=reshards, together=together)
    assert all(map(torch.equal, step(model, given), plain))
    with apply(model, plan):
        assert all(map(torch.equal, step(model, given), plain))
        assert all(hasattr(each, "to_local") for each in model.parameters())  # taken apart again
    before = made()
    apply(before, plan)
    assert all(map(torch.equal, step(shard(before, reshards=reshards), given), plain))


def test_a_blocks_result_is_known_though_fully_shard_hands_on_another_tensor(
    shard: Callable[..., Any],
) -> None:
    model = shard(made())
    with apply(model, in_segments(6)):
        loss = model(torch.randn(8, 16))
        segment = model.layers[0].__dict__["forward"].segment
        loss.backward()
    # What the first block gives to all others is noted as made by it, and nothing is kept of it.
    assert set(segment.skipping) == {(0, 1)}


def test_a_block_that_the_older_way_flattens_is_refused() -> None:
    model = made()
    apply(model, in_segments(3, 3))
    block: Any = model.layers[1]
    block.up.weight._fsdp_flattened = True  # as FullyShardedDataParallel marks it
    with pytest.raises(NotSupportedError, match=r"layers\.1 .* FullyShardedDataParallel has its"):
        model(torch.randn(8, 16))


def test_a_block_whose_parameters_were_merged_since_is_refused_by_their_number() -> None:
    model = made()
    apply(model, in_segments(3, 3))
    block: Any = model.layers[1]
    count = len(list(block.parameters()))
    block.up.bias = None
    said = rf"layers\.1 .* has {count - 1} parameters, where it had {count} when the plan"
    with pytest.raises(NotSupportedError, match=said):
        model(torch.randn(8, 16))
