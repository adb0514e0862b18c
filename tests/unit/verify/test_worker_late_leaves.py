"""Leaves that a step makes, or makes ask for a gradient, and those in places without a name."""

import functools
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from haversack.torch import Workload  # noqa: E402
from haversack_server.worker.leaves import Leaves, find_leaves, roots  # noqa: E402
from haversack_server.worker.state import snapshot  # noqa: E402

WIDTH = 3
Kept = tuple[dict[str, Any], dict[str, str]]


def weight() -> Any:
    return torch.ones(WIDTH, requires_grad=True)


def after(workload: Workload, leaves: Leaves) -> Kept:
    """Give gradients after the step by name, and what is spelled of intermediates."""
    found = snapshot(roots(workload)).with_gradient
    late = leaves.with_late(found)
    values = late.values([], [])
    return values["INPUT_GRADIENTS"] | values["PARAMETER_GRADIENTS"], late.retained(found)


def stepped(model: Any, x: Any) -> Kept:
    workload = Workload(model, (x,))
    leaves = find_leaves(workload)
    model(x).sum().backward()
    return after(workload, leaves)


class Lazy(nn.Module):
    """Makes its scale in its first forward, as an adapter for a new task is made."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: Any = None

    def forward(self, x: Any) -> Any:
        if self.scale is None:
            self.scale = nn.Parameter(torch.ones(WIDTH))
        return x * self.scale


class Unfreezing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 1).requires_grad_(False)

    def forward(self, x: Any) -> Any:
        self.inner.requires_grad_(True)
        return self.inner(x)


class Remaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 1, bias=False)

    def forward(self, x: Any) -> Any:
        self.inner.weight = nn.Parameter(self.inner.weight.detach() / 2)
        return self.inner(x)


class Cutting(nn.Module):
    def forward(self, x: Any) -> Any:
        self.cut = x.detach().requires_grad_()
        return self.cut * 2


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (Lazy, ["scale"]),
        (Unfreezing, ["inner.weight", "inner.bias"]),
        (Remaking, ["inner.weight"]),
        (Cutting, ["model.cut"]),
    ],
)
def test_a_leaf_of_the_step_has_its_gradient_compared(model: Any, names: list[str]) -> None:
    gradients, _ = stepped(model(), torch.ones(2, WIDTH))
    assert [name for name, each in gradients.items() if each is not None] == names


def test_an_input_that_asks_in_the_forward_is_an_input() -> None:
    x = torch.ones(WIDTH)
    assert list(stepped(lambda x: x.requires_grad_() * 2, x)[0]) == ["args[0]"]


def test_a_module_may_be_named_as_inputs_are() -> None:
    model: Any = nn.Sequential()
    model.args = Lazy()
    leaves = find_leaves(workload := Workload(model, (torch.ones(2, WIDTH),)))
    model(torch.ones(2, WIDTH))
    model.args(torch.ones(2, WIDTH)).sum().backward()
    late = leaves.with_late(snapshot(roots(workload)).with_gradient)
    assert (list(late.inputs), list(late.parameters)) == ([], ["args.scale"])


def test_a_late_leaf_that_the_plain_run_has_not_is_none() -> None:
    """The reentrant variant makes a leaf of what goes into a region, which a model may keep."""
    workload = Workload(Cutting(), (torch.ones(WIDTH),))
    leaves = find_leaves(workload)
    plain = leaves.values([], [])
    workload.model(*workload.args).sum().backward()
    late = leaves.with_late(snapshot(roots(workload)).with_gradient)
    own = late.values([], [])
    assert list(own["PARAMETER_GRADIENTS"]) == ["model.cut"]
    assert late.as_in(plain, own)["PARAMETER_GRADIENTS"] == {}
    assert list(late.as_in(own, own)["PARAMETER_GRADIENTS"]) == ["model.cut"]


def test_gradients_that_a_model_keeps_of_what_is_no_leaf_are_state() -> None:
    class Keeping(nn.Module):
        def forward(self, x: Any) -> Any:
            self.kept = x * 2
            self.kept.retain_grad()
            return self.kept * 3

    gradients, kept = stepped(Keeping(), weight())
    assert list(gradients) == ["args[0]"]
    assert list(kept) == ["model.kept.grad"]


def test_a_main_gradient_is_a_gradient() -> None:
    model: Any = nn.Linear(WIDTH, 1, bias=False)
    model.weight.main_grad = torch.ones(1, WIDTH)
    model.weight.grad_sample = None
    assert list(stepped(model, torch.ones(WIDTH))[0]) == ["weight", "weight.main_grad"]


class Holding(nn.Module):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held


def cached() -> Any:
    made = functools.lru_cache(lambda: weight())
    made()
    return made


KEY = weight()


@pytest.mark.parametrize(
    ("held", "names"),
    [
        ({weight(), weight()}, ["model.held[member 0]", "model.held[member 1]"]),
        ({weight(): 1}, ["model.held[key 0]"]),
        (weakref.WeakKeyDictionary({KEY: 1}), ["model.held[key 0]"]),
        (torch.distributions.Normal(weight(), torch.ones(WIDTH)), ["model.held.loc"]),
        (TensorDataset(weight()), ["model.held.tensors[0]"]),
    ],
    ids=["a set", "keys", "weak keys", "a distribution", "a data set"],
)
def test_weights_are_found_where_nothing_names_them(held: Any, names: list[str]) -> None:
    assert list(find_leaves(Workload(Holding(held))).parameters) == names


def test_weights_are_found_in_caches_and_in_optimizers() -> None:
    assert len(find_leaves(Workload(Holding(cached()))).parameters) == 1
    hidden = weight()
    workload = Workload(nn.Identity(), optimizer=torch.optim.SGD([hidden]))
    assert list(find_leaves(workload).parameters) == ["optimizer.param_groups[0][0]"]


def test_a_module_in_a_set_has_its_buffers_compared() -> None:
    leaves = find_leaves(Workload(Holding({nn.BatchNorm1d(1), nn.BatchNorm1d(1)})))
    assert len(leaves.values([], [])["BUFFERS"]) == 6
