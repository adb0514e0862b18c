"""Gradients that hooks take away are compared, and no others are kept."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import nn  # noqa: E402

from haversack_server.worker.memory import LiveStorages  # noqa: E402
from haversack_server.worker.taken_gradients import TakenGradients  # noqa: E402

TWO = [[2.0, 2.0]]


def stepped(model: Any, *, backwards: int = 1) -> dict[str, Any]:
    parameters = dict(model.named_parameters())
    taken = TakenGradients(parameters)
    for _ in range(backwards):
        model(torch.ones(2, 2)).sum().backward()
    return {name: gradient.tolist() for name, gradient in taken.of(parameters).items()}


def linear(hook: Callable[[Any], None] | None) -> Any:
    model: Any = nn.Linear(2, 1)
    if hook is not None:
        model.weight.register_post_accumulate_grad_hook(hook)
    return model


def take(parameter: Any) -> None:
    parameter.grad = None


def test_what_a_hook_takes_away_is_added_up_over_backwards() -> None:
    assert stepped(linear(take)) == {"weight": TWO}
    assert stepped(linear(take), backwards=2) == {"weight": [[4.0, 4.0]]}


def double(parameter: Any) -> None:
    parameter.grad.mul_(2)


@pytest.mark.parametrize("hook", [None, double])
def test_what_is_left_in_its_place_is_not_kept(hook: Callable[[Any], None] | None) -> None:
    assert stepped(linear(hook)) == {}


def test_it_is_what_hooks_of_the_tensor_have_made_of_it() -> None:
    model = linear(take)
    model.weight.register_hook(lambda gradient: gradient * 3)
    assert stepped(model) == {"weight": [[6.0, 6.0]]}


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
