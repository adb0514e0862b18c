"""Between two steps gradients are kept, and weights looked at, outside of what is measured."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import nn  # noqa: E402

from haversack_server.worker.between_steps import BetweenSteps  # noqa: E402
from haversack_server.worker.memory import LiveStorages  # noqa: E402


def stepped(
    model: Any, *, before: Callable[[], object] = int, after: Callable[[], object] = int
) -> BetweenSteps:
    optimizer = torch.optim.SGD([model.weight], lr=0.5)
    between = BetweenSteps(dict(model.named_parameters()), {}, optimizer)
    model(torch.ones(1, 2)).sum().backward()
    before()
    with between.around():
        optimizer.step()
    optimizer.zero_grad()
    after()
    return between


def linear(factor: float = 1.0) -> Any:
    model: Any = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.fill_(1.0)
    model.weight.register_hook(lambda gradient: gradient * factor)
    return model


def test_gradients_of_the_first_step_outlive_it() -> None:
    model = linear()
    kept: Any = stepped(model).gradients
    assert model.weight.grad is None
    assert kept["step 1: weight"].tolist() == [[1.0, 1.0]]
    assert kept["step 1: bias"].tolist() == [1.0]


def test_a_parameter_without_a_gradient_is_said_to_have_none() -> None:
    model = linear()
    model.unused = nn.Parameter(torch.ones(1))
    assert stepped(model).gradients["step 1: unused"] is None


def test_what_the_optimizer_makes_of_a_weight_is_no_change_of_the_model() -> None:
    one, other = linear(), linear(factor=3.0)
    told = [next(iter(stepped(model).own_changes().values())) for model in (one, other)]
    assert one.weight.tolist() != other.weight.tolist()
    assert told[0] == told[1]


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_the_steps_themselves_make_of_it_is(when: str) -> None:
    model = linear()
    [unchanged] = stepped(linear()).own_changes().values()
    [changed] = stepped(model, **{when: lambda: model.weight.data.mul_(2)}).own_changes().values()
    assert changed != unchanged


def test_parameters_that_no_optimizer_moves_are_left_to_the_snapshot() -> None:
    model = linear()
    assert list(stepped(model).own_changes()) == [id(model.weight)]
    assert BetweenSteps(dict(model.named_parameters()), {}, None).own_changes() == {}


def test_copies_are_no_part_of_the_memory_of_a_step() -> None:
    model = linear()
    between = BetweenSteps(dict(model.named_parameters()), {}, None)
    model(torch.ones(1, 2)).sum().backward()
    with LiveStorages() as live, between.around():
        pass
    assert between.gradients
    assert live.peak_bytes == 0
