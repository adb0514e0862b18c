"""Tensors that skip over blocks: who keeps them is found, and what cannot be known is left out."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are profiled")

import torch
from tests.integration.skipping_nets import WIDTH, AddingUNet, Biased, Decoder, UNet
from torch import Tensor, nn
from torch.nn import functional

from haversack.profile import Profile
from haversack.torch import Workload
from haversack.torch.blocks import detected_blocks
from haversack.torch.roofline import Roofline
from haversack.torch.runs import Runs
from haversack.torch.skips import with_skips
from haversack.torch.tables import profile_of

DEEP, ROWS, LENGTH = 8, 2, 12
POLICY = "selective aten.addmm.default:0,1"


def profiled(model: nn.Module, *shape: int, policies: tuple[str, ...] = ()) -> Profile:
    """Profile a model by two options, and by policies that are named."""
    workload = Workload(
        model, args=(torch.randn(shape),), loss=lambda output: output.square().mean()
    )
    blocks = detected_blocks(model)
    runs = Runs(workload, blocks, Roofline())
    runs.add({})
    for option in ("recompute", *policies):
        runs.add(dict.fromkeys(runs.open_blocks, option))
    return with_skips(profile_of(model, blocks, runs.seen, runs.read()), runs.skips(), runs.order)


def named(found: Profile) -> list[dict[str, Any]]:
    """Write skip tensors with the names of their blocks."""
    names = [each.name for each in found.blocks]
    return [
        {
            "bytes": each.size_bytes,
            "maker": names[each.maker],
            "read until": names[each.read_until],
            "kept from": None if each.kept_from is None else names[each.kept_from],
            "keepers": {names[keeper.block]: keeper.option for keeper in each.keepers},
        }
        for each in found.skip_tensors
    ]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Biased() for _ in range(DEEP))

    def forward(self, hidden: Tensor) -> Tensor:
        bias = None
        for block in self.blocks:
            hidden, bias = block(hidden, bias)
        return hidden


def test_a_bias_is_kept_by_the_blocks_that_run_again_also_where_others_stood_in() -> None:
    """Eight equal blocks, of which most do not run: one bias, and each may keep it."""
    scores_bytes = ROWS * 4 * LENGTH * LENGTH * 4
    assert named(profiled(Encoder(), ROWS, LENGTH, WIDTH)) == [
        {
            "bytes": scores_bytes,
            "maker": "blocks.0",
            "read until": f"(after blocks.{DEEP - 1})",
            "kept from": None,
            "keepers": {f"blocks.{place}": ("recompute",) for place in range(1, DEEP)},
        }
    ]


def test_what_is_added_on_the_way_up_is_kept_by_who_runs_again() -> None:
    found = named(profiled(AddingUNet(), 2, 3, 32, 32))
    assert [(each["maker"], each["kept from"], [*each["keepers"]]) for each in found] == [
        ("blocks.0", None, ["blocks.1", "blocks.2"]),
        ("(before blocks.0)", None, ["blocks.0", "blocks.3"]),
    ]


@pytest.mark.parametrize(("net", "shape"), [(UNet, (2, 3, 32, 32)), (Decoder, (64, WIDTH))])
def test_what_the_next_block_keeps_anyway_is_the_chains(
    net: type[nn.Module], shape: tuple[int, ...]
) -> None:
    assert named(profiled(net(), *shape)) == []


class Products(nn.Module):
    """Ends in a product that a policy of all products saves, and that its backward needs not."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor, skipped: Tensor | None = None) -> Tensor:
        hidden = hidden * 2 if skipped is None else hidden + skipped
        result: Tensor = self.narrow(functional.gelu(self.wide(hidden)))
        return result


class Skipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Products() for _ in range(3))

    def forward(self, hidden: Tensor) -> Tensor:
        first = self.blocks[0](hidden)
        last: Tensor = self.blocks[2](self.blocks[1](first), first)
        return last


def test_a_policy_of_the_maker_may_keep_it_too() -> None:
    (found,) = named(profiled(Skipping(), 64, WIDTH, policies=(POLICY,)))
    assert found["maker"] == "blocks.0"
    again = ("recompute", POLICY)
    assert found["keepers"] == {"blocks.0": (POLICY,), "blocks.1": again, "blocks.2": again}
