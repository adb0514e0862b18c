"""Plans and ``torch.compile`` of single blocks: what works in either order, and what is refused."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="plans are applied to models of PyTorch")

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from haversack.errors import InvalidRequestError
from haversack.plan import Plan
from haversack.run import BlockAction
from haversack.torch import apply

ROWS, WIDTH = 16, 8
OPTIONS = (
    "recompute",
    "selective aten.addmm.default:0 without aten.native_layer_norm.default:0",
)


class Block(nn.Module):
    """A norm, two products and an activation, around which the input is added."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        inner = nn.functional.gelu(self.wide(self.norm(hidden)))
        result: Tensor = hidden + self.narrow(inner)
        return result


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers: Any = nn.ModuleList(Block() for _ in range(2))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def plan_of(option: str) -> Plan:
    return Plan(actions=tuple(BlockAction(block=f"layers.{i}", option=option) for i in range(2)))


def step(model: nn.Module) -> tuple[list[Tensor], int]:
    """Run a step; give loss and gradients, and the bytes that autograd saves of activations."""
    own = {each.untyped_storage()._cdata for each in model.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            saved[storage._cdata] = storage.nbytes()
        return tensor

    torch.manual_seed(1)
    given = torch.randn(ROWS, WIDTH)
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(given).square().mean()
    loss.backward()
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    model.zero_grad()
    return [loss.detach(), *gradients], sum(saved.values())


def compiled(model: Model) -> Model:
    torch._dynamo.reset()
    for layer in model.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    return model


def test_a_block_wrapped_by_a_compiler_is_refused_in_words_that_say_what_to_do() -> None:
    model = Model()
    model.layers[1] = torch.compile(model.layers[1], backend="eager")
    with pytest.raises(
        InvalidRequestError, match=r"layers\.1 is wrapped .*compile it in place"
    ) as caught:
        apply(model, plan_of("recompute"))
    assert caught.value.field == "model"
    assert apply(model, Plan(actions=plan_of("recompute").actions[:1])).options.keys() == {
        "layers.0"
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler's own
@pytest.mark.parametrize("option", OPTIONS)
def test_blocks_compiled_in_place_before_or_after_follow_the_plan(option: str) -> None:
    plain, whole_bytes = step(Model())
    before, after = compiled(Model()), Model()
    step(before)  # compiled without the plan
    for model in (before, after):
        with apply(model, plan_of(option)):
            found, saved_bytes = step(model if model is before else compiled(model))
        assert all(map(torch.equal, found, plain))
        assert saved_bytes < whole_bytes
