"""Gradients that hooks take away are compared, and no others are kept."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from haversack.verify import Facet  # noqa: E402
from haversack_server.verify.comparison import Closeness  # noqa: E402
from haversack_server.worker.compare import rows  # noqa: E402
from haversack_server.worker.memory import LiveStorages  # noqa: E402
from haversack_server.worker.taken_gradients import HOOKS, TakenGradients  # noqa: E402

TWO = [[2.0, 2.0]]


def stepped(model: Any, *, backwards: int = 1) -> dict[str, Any]:
    parameters = dict(model.named_parameters())
    taken = TakenGradients(parameters)
    for _ in range(backwards):
        model(torch.ones(2, 2)).sum().backward()
    found = taken.of(parameters)
    return {name: each if isinstance(each, str) else each.tolist() for name, each in found.items()}


def called(times: int, end: str) -> dict[str, str]:
    return {f"weight ({HOOKS})": f"called {times} times, gradient {end}"}


def linear(hook: Callable[[Any], None] | None) -> Any:
    model: Any = nn.Linear(2, 1)
    if hook is not None:
        model.weight.register_post_accumulate_grad_hook(hook)
    return model


def take(parameter: Any) -> None:
    parameter.grad = None


def test_what_a_hook_takes_away_is_added_up_over_backwards() -> None:
    assert stepped(linear(take)) == {"weight": TWO, **called(1, "taken")}
    twice = stepped(linear(take), backwards=2)
    assert twice == {"weight": [[4.0, 4.0]], **called(2, "taken")}


def double(parameter: Any) -> None:
    parameter.grad.mul_(2)


@pytest.mark.parametrize("hook", [None, double])
def test_what_is_left_in_its_place_is_not_kept(hook: Callable[[Any], None] | None) -> None:
    assert stepped(linear(hook)) == {}


def test_hooks_that_leave_a_gradient_are_counted_apart() -> None:
    model = linear(double)
    parameters = dict(model.named_parameters())
    taken = TakenGradients(parameters)
    model(torch.ones(2, 2)).sum().backward()
    assert taken.calls_with_gradient(parameters) == called(1, "left")
    assert taken.of(parameters) == {}
    model.weight.grad = None
    assert taken.calls_with_gradient(parameters) == {}


def test_it_is_what_hooks_of_the_tensor_have_made_of_it() -> None:
    model = linear(take)
    model.weight.register_hook(lambda gradient: gradient * 3)
    assert stepped(model) == {"weight": [[6.0, 6.0]], **called(1, "taken")}


class Twice(nn.Module):
    """Two regions of one weight."""

    def __init__(self, hook: Callable[[Any], None]) -> None:
        super().__init__()
        weight: Any = nn.Parameter(torch.ones(2, 2))
        self.weight = weight
        weight.register_post_accumulate_grad_hook(hook)

    def step(self, use_reentrant: bool | None) -> dict[str, Any]:
        def region(x: Any) -> Any:
            return (x @ self.weight).sin()

        def run(x: Any) -> Any:
            return region(x) if use_reentrant is None else checkpoint(region, x, **settings)

        settings: Any = {"use_reentrant": use_reentrant}
        taken = TakenGradients({"weight": self.weight})
        run(run(torch.ones(2, 2, requires_grad=True))).sum().backward()
        return taken.of({"weight": self.weight})


def every_second_time() -> Callable[[Any], None]:
    """Make the hook of a bucket that is emptied after two microbatches."""
    calls = itertools.count(1)

    def hook(parameter: Any) -> None:
        if next(calls) % 2 == 0:
            parameter.grad = None

    return hook


def test_a_gradient_that_is_taken_in_one_run_only_is_told() -> None:
    plain, reentrant = (Twice(every_second_time()).step(each) for each in (None, True))
    assert plain == {}
    assert reentrant.items() >= called(2, "taken").items()


def test_what_is_overwritten_by_parts_is_told_apart_from_the_whole() -> None:
    plain, other, reentrant = (Twice(take).step(each) for each in (None, False, True))
    assert plain.items() >= called(1, "taken").items()
    assert [*rows(Facet.PARAMETER_GRADIENTS, plain, other)] == []
    [found] = rows(Facet.PARAMETER_GRADIENTS, plain, reentrant)
    assert found.closeness is Closeness.DIFFERENT
    assert "called 1 times" in found.note
    assert "called 2 times" in found.note


def test_copies_are_no_part_of_the_memory_of_a_step() -> None:
    def peak(*, watched: bool) -> int:
        model = linear(take)
        taken = TakenGradients(dict(model.named_parameters()) if watched else {})
        live = LiveStorages()
        with live:
            model(torch.ones(2, 2)).sum().backward()
        assert bool(taken.of(dict(model.named_parameters()))) is watched
        return live.peak_bytes

    assert peak(watched=True) == peak(watched=False) > 0
