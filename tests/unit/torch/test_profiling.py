"""Profiles of small nets: figures that can be added up by hand, and what blocks are flagged."""

import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are profiled")

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from haversack.basis import Basis
from haversack.profile import OptionTable, Profile
from haversack.torch import Workload, profile
from haversack.torch.blocks import fingerprint
from haversack.torch.states import state_bytes

ROWS, WIDTH = 1024, 8
HIDDEN = 4 * ROWS * WIDTH  # bytes of one tensor between blocks
WEIGHT = 4 * WIDTH * WIDTH
STATE = state_bytes()  # of the generator, which a checkpoint keeps


class Block(nn.Module):
    """A matrix product and two activations: each keeps one tensor for backward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear: Any = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.sigmoid(torch.tanh(self.linear(hidden)))


class Model(nn.Module):
    def __init__(self, block: Callable[[], nn.Module] = Block, blocks: int = 3) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList(block() for _ in range(blocks))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def profiled(model: nn.Module, **kwargs: Any) -> Profile:
    return profile(Workload(model, args=(torch.ones(ROWS, WIDTH),)), **kwargs)


def table_of(found: Profile, name: str) -> OptionTable:
    return next(found.tables[block.table] for block in found.blocks if block.name == name)


def test_the_figures_are_those_that_can_be_added_up_by_hand() -> None:
    found = profiled(Model())
    table = table_of(found, "layers.1")
    assert table.option[:2] == ("save", "recompute")
    # tanh and sigmoid keep their results; a recomputed block keeps its result for the next one.
    assert table.retained_bytes[:2] == (2 * HIDDEN, HIDDEN + STATE)
    assert found.region_bytes == STATE
    # While tanh runs, the product is there too; while sigmoid runs, the product is gone.
    assert table.forward_peak_bytes[0] == 2 * HIDDEN
    # Recomputed: its own result, the gradient of it, and what a forward makes.
    assert table.backward_peak_bytes[1] > table.backward_peak_bytes[0] - HIDDEN
    block = next(each for each in found.blocks if each.name == "layers.1")
    assert block.parameter_bytes == block.gradient_bytes == WEIGHT
    assert block.fingerprint == fingerprint(Model().layers[1])
    assert found.model_fingerprint == fingerprint(Model())
    assert found.basis is Basis.PROFILED


def test_a_list_that_is_named_stands_for_its_blocks() -> None:
    assert profiled(Model(), blocks=["layers"]) == profiled(Model())


def test_equal_blocks_share_a_table_and_the_ends_of_the_chain_are_named() -> None:
    found = profiled(Model(blocks=4))
    names = [block.name for block in found.blocks]
    assert names == ["(before layers.0)", *(f"layers.{i}" for i in range(4)), "(after layers.3)"]
    assert table_of(found, "layers.1") == table_of(found, "layers.2")
    assert len(found.tables) < len(names)


def test_a_policy_saves_the_products_and_is_charged_for_the_rest() -> None:
    table = table_of(
        profiled(Model(lambda: nn.Sequential(Block(), nn.GELU(), nn.Tanh()))), "layers.1"
    )
    place = table.option.index("selective aten.mm.default:0")
    # Kept are results of tanh, sigmoid, and the last tanh; the policy keeps the product besides
    # the last.
    assert table.retained_bytes[:2] == (3 * HIDDEN, HIDDEN + STATE)
    assert table.retained_bytes[place] == 2 * HIDDEN + STATE
    assert 0 < table.extra_ns[place] < table.extra_ns[table.option.index("recompute")]


def test_a_product_that_is_written_to_is_never_saved_by_a_policy() -> None:
    def block(inplace: bool) -> Callable[[], nn.Module]:
        rectified = nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=inplace)
        return lambda: nn.Sequential(*rectified, nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Tanh())

    first, second = "selective aten.addmm.default:0", "selective aten.addmm.default:1"
    written = table_of(profiled(Model(block(inplace=True), blocks=1)), "layers.0").option
    assert second in written
    assert not [option for option in written if option.startswith(first)]
    kept = table_of(profiled(Model(block(inplace=False), blocks=1)), "layers.0").option
    assert [option for option in kept if option.startswith(first)]


def test_the_output_is_held_by_the_caller() -> None:
    found = profiled(Model())
    # The output, and the loss, which is its sum.
    assert found.held_by_caller_bytes == HIDDEN + 4


class Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which tensors that operations make are real."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.real_bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if type(result) is Tensor:
            self.real_bytes += result.untyped_storage().nbytes()
        return result


def contents(model: nn.Module) -> list[tuple[str, int]]:
    """Name every attribute of every module, and every entry of its tables, with its identity."""
    found = []
    for module in model.modules():
        found += [(name, id(value)) for name, value in module.__dict__.items()]
        for table in (module._parameters, module._buffers, module._modules):
            found += [(name, id(value)) for name, value in table.items()]
    return found


def test_no_memory_is_taken_and_the_model_is_left_as_it_was() -> None:
    model = Model()
    model.layers[0].linear.weight.grad = torch.ones(WIDTH, WIDTH)
    before = contents(model)
    parameters = [(id(each), id(each.grad), each._version) for each in model.parameters()]
    states = random.getstate(), torch.get_rng_state().tolist()
    with Kernels() as kernels:
        profiled(model)
    assert kernels.real_bytes <= 4 * ROWS * WIDTH  # the argument that the test makes
    assert contents(model) == before
    assert [(id(e), id(e.grad), e._version) for e in model.parameters()] == parameters
    assert (random.getstate(), torch.get_rng_state().tolist()) == states


def test_frozen_parameters_have_no_gradients() -> None:
    model = Model()
    model.layers[0].requires_grad_(False)
    sizes = {block.name: block.gradient_bytes for block in profiled(model).blocks}
    assert sizes["layers.0"] == 0
    assert sizes["layers.1"] == WEIGHT


def test_a_tied_weight_is_counted_once() -> None:
    model = Model()
    model.layers[2].linear.weight = model.layers[0].linear.weight
    found = profiled(model)
    assert sum(block.parameter_bytes for block in found.blocks) == 2 * WEIGHT
    assert sum(block.gradient_bytes for block in found.blocks) == 2 * WEIGHT


class Drawing(Block):
    def __init__(self, draw: Callable[[], Any]) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, hidden: Tensor) -> Tensor:
        self.draw()
        return super().forward(hidden)


def test_a_block_that_draws_from_pytorch_may_be_recomputed() -> None:
    found = profiled(Model(lambda: nn.Sequential(Block(), nn.Dropout(0.5))))
    assert found.blocks[1].draws_random
    assert "recompute" in table_of(found, "layers.0").option


@pytest.mark.parametrize(
    "draw",
    [
        random.random,
        lambda: torch.rand(2, generator=torch.Generator()),
    ],
)
def test_a_block_that_draws_from_elsewhere_is_saved(draw: Callable[[], Any]) -> None:
    found = profiled(Model(lambda: Drawing(draw)))
    assert found.blocks[1].draws_random
    assert table_of(found, "layers.0").option == ("save",)


def test_a_block_that_changes_its_buffers_is_saved_and_they_are_named() -> None:
    model = Model(lambda: nn.Sequential(Block(), nn.BatchNorm1d(WIDTH)))
    found = profiled(model)
    assert "1.num_batches_tracked" in found.blocks[1].mutated_buffers
    assert table_of(found, "layers.0").option == ("save",)
    assert model.layers[0][1].num_batches_tracked == 0
    assert "recompute" in table_of(profiled(model.eval()), "layers.0").option


def test_a_block_that_changes_its_input_is_saved() -> None:
    class InPlace(Block):
        def forward(self, hidden: Tensor) -> Tensor:
            return super().forward(hidden.mul_(2))

    class Outer(Model):
        def forward(self, hidden: Tensor) -> Tensor:
            return super().forward(hidden.clone())

    found = profiled(Outer(InPlace, blocks=1))
    assert found.blocks[1].mutates_inputs
    assert table_of(found, "layers.0").option == ("save",)


def test_what_is_not_profiled_names_the_optimizer_only_where_there_is_none() -> None:
    model = Model()
    adam = torch.optim.AdamW(model.parameters())
    known = profile(Workload(model, args=(torch.ones(ROWS, WIDTH),), optimizer=adam))
    unknown = profiled(Model())
    assert set(unknown.not_profiled) - set(known.not_profiled) == {
        "the optimizer's step and its state: the workload has none"
    }


def test_blocks_can_be_named_and_what_did_not_run_is_said() -> None:
    class First(Model):
        def forward(self, hidden: Tensor) -> Tensor:
            result: Tensor = self.layers[0](hidden)
            return result

    found = profiled(First())
    assert [block.name for block in found.blocks][1:-1] == ["layers.0"]
    assert "layers.1: it did not run in this step" in found.not_profiled
    named = profiled(nn.Sequential(Block(), Block()), blocks=["1"])
    assert [block.name for block in named.blocks] == ["(before 1)", "1", "(after 1)"]


def test_what_the_users_loss_holds_is_counted() -> None:
    kept = []

    def loss(output: Tensor) -> Tensor:
        kept.append(output * 2)
        return output.mean()

    model, argument = Model(), torch.ones(ROWS, WIDTH)
    found = profile(Workload(model, args=(argument,), loss=loss))
    assert found.held_by_caller_bytes == 2 * HIDDEN + 4
