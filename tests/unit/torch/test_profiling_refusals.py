"""What cannot be profiled is refused in a sentence, with the module; figures are not looked at."""

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are profiled")

import torch
from tests.unit.torch.test_profiling import ROWS, WIDTH, Block, Model, profiled
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.torch import Workload, profile


def test_a_path_that_depends_on_data_is_refused_with_the_module() -> None:
    class Branching(Block):
        def forward(self, hidden: Tensor) -> Tensor:
            return super().forward(hidden if hidden.sum() > 0 else -hidden)

    with pytest.raises(NotSupportedError, match=r"layers\.0 cannot be profiled: .* depend on data"):
        profiled(Model(Branching))


def test_shapes_that_depend_on_data_are_refused_with_the_module() -> None:
    class Choosing(Block):
        def forward(self, hidden: Tensor) -> Tensor:
            return super().forward(hidden[hidden[:, 0] > 0])

    with pytest.raises(NotSupportedError, match=r"layers\.0 cannot be profiled"):
        profiled(Model(Choosing))


@torch.library.custom_op("haversack_tests::without_a_fake", mutates_args=())
def without_a_fake(hidden: Tensor) -> Tensor:
    return hidden.clone()


def test_an_operation_that_fake_tensors_refuse_is_named_with_the_module() -> None:
    class Custom(Block):
        def forward(self, hidden: Tensor) -> Tensor:
            result: Tensor = without_a_fake(super().forward(hidden))
            return result

    with pytest.raises(NotSupportedError, match=r"layers\.0 cannot be profiled: an operation"):
        profiled(Model(Custom))


def test_blocks_that_are_read_but_never_called_are_refused() -> None:
    class Reading(Model):
        def forward(self, hidden: Tensor) -> Tensor:
            for layer in self.layers:
                hidden = hidden @ layer.linear.weight
            return hidden

    with pytest.raises(InvalidRequestError, match=r"none of the blocks ran, such as layers\.0"):
        profiled(Reading())


@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_a_choice_of_blocks_by_draws_that_nobody_replays_is_refused_or_said(chance: float) -> None:
    class Skipping(Model):
        def forward(self, hidden: Tensor) -> Tensor:
            for layer in self.layers:
                hidden = hidden if random.random() < chance else layer(hidden)
            result: Tensor = self.last(hidden)
            return result

        def __init__(self) -> None:
            super().__init__()
            self.last: Any = self.layers.pop(-1)
            self.layers.append(Block())

    if chance:
        with pytest.raises(InvalidRequestError, match="none of the blocks ran"):
            profiled(Skipping())
        with pytest.raises(NotSupportedError, match=r"layers\.0 did not run, and the model draws"):
            profiled(Skipping(), blocks=["layers.0", "layers.1", "last"])
    else:
        assert any("segments: the model may" in each for each in profiled(Skipping()).not_profiled)


def test_what_any_step_would_raise_is_the_users_own() -> None:
    class Failing(Block):
        def forward(self, hidden: Tensor) -> Tensor:
            raise ValueError("mine")

    model = Model(Failing)
    with pytest.raises(ValueError, match="mine"):
        profiled(model)
    assert "forward" not in model.layers[0].__dict__


def test_a_block_that_runs_twice_is_refused() -> None:
    class Twice(Model):
        def forward(self, hidden: Tensor) -> Tensor:
            return super().forward(super().forward(hidden))

    with pytest.raises(NotSupportedError, match=r"layers\.0 runs more than once"):
        profiled(Twice())


def test_a_backward_inside_the_forward_is_refused() -> None:
    class Penalised(Model):
        def forward(self, hidden: Tensor) -> Tensor:
            result = super().forward(hidden.requires_grad_())
            (slope,) = torch.autograd.grad(result.sum(), hidden)
            return result + slope

    with pytest.raises(NotSupportedError, match="a backward inside its forward"):
        profiled(Penalised())


def _line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(text))


def test_a_double_backward_is_refused_with_its_module_and_line() -> None:
    class Penalised(Block):
        def forward(self, hidden: Tensor) -> Tensor:
            energy = super().forward(hidden.requires_grad_()).square().sum()
            (slope,) = torch.autograd.grad(energy, hidden, create_graph=True)  # twice
            return slope

    model = Model(Penalised)
    with pytest.raises(NotSupportedError) as refused:
        profiled(model)
    assert str(refused.value) == (
        "layers.0 cannot be profiled: it runs a backward with create_graph=True, a double "
        f"backward, at {__file__}:{_line_of('# twice')}, and its graph outlives what a plan "
        "counts; profile a workload without it"
    )
    loss = model.layers[0](torch.ones(ROWS, WIDTH)).sum()
    torch.autograd.backward(loss, retain_graph=True)  # nothing of the guard is left behind


def test_a_loss_that_keeps_its_graph_is_refused_with_its_line() -> None:
    def loss(result: Tensor) -> Tensor:
        torch.autograd.backward(result.sum(), retain_graph=True)  # kept
        return result.sum()

    line = f"the step cannot be profiled: .*retain_graph=True, at .*:{_line_of('# kept')}"
    with pytest.raises(NotSupportedError, match=line):
        profile(Workload(Model(), args=(torch.ones(ROWS, WIDTH),), loss=loss))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_model_that_checkpoints_by_itself_is_refused_with_its_line(reentrant: bool) -> None:
    class Own(Block):
        def forward(self, hidden: Tensor) -> Tensor:
            inner = super().forward
            return checkpoint(inner, hidden, use_reentrant=reentrant)  # type: ignore[no-any-return] # own

    model = Model(Own)
    line = rf"layers\.0 cannot be .*checkpoints .* by itself, at .*:{_line_of('# own')}, and what"
    with pytest.raises(NotSupportedError, match=line):
        profiled(model)
    model(torch.ones(ROWS, WIDTH, requires_grad=True))  # nothing of the refusal is left behind


def test_a_model_with_a_compiled_block_is_refused_with_the_block() -> None:
    model = Model()
    model.layers[1].compile(backend="eager")
    with pytest.raises(NotSupportedError, match=r"layers\.1 is a Block, compiled or wrapped"):
        profiled(model)


def test_an_optimizer_of_another_model_is_refused() -> None:
    stray = torch.optim.SGD(Model().parameters(), lr=0.1)
    workload = Workload(Model(), args=(torch.ones(ROWS, WIDTH),), optimizer=stray)
    with pytest.raises(InvalidRequestError, match="none of the model's parameters") as error:
        profile(workload)
    assert error.value.field == "workload.optimizer"


def test_a_lazy_parameter_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidRequestError, match=r"0\.weight has no shape yet"):
        profiled(nn.Sequential(nn.LazyLinear(WIDTH), nn.Linear(WIDTH, WIDTH)))


def test_a_block_inside_another_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="which has it already"):
        profiled(Model(), blocks=["layers.0", "layers.0.linear"])


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no ModuleList"):
        profiled(nn.Sequential(Block()))
    with pytest.raises(InvalidRequestError, match=r"no module 'layers\.9'"):
        profiled(Model(), blocks=["layers.9"])
    with pytest.raises(InvalidRequestError, match="has no blocks"):
        profile(Workload(len))
