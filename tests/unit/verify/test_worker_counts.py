"""How often regions are expected to be entered, where gradients are off for some of their calls."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402

from haversack_server.worker.regions import Regions  # noqa: E402

Step = Callable[["Nest", Any], Any]


class Nest:
    """Calls of regions inside regions, as a forward makes them."""

    def __init__(self) -> None:
        self.regions = Regions({}, direct=False)

    def call(self, function: Callable[[Any], Any], x: Any, *, reentrant: bool = False) -> Any:
        run: Any = checkpoint
        return self.regions.handle(run, function, x, use_reentrant=reentrant)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Give what was entered and what was expected, by region."""
        found: dict[str, tuple[int, int]] = {}
        for call in self.regions.calls:
            entries, expected = found.get(call.region, (0, 0))
            expected += 0 if call.in_replay else call.expected_entries
            found[call.region] = (entries + call.entries, expected)
        return found


def sine(x: Any) -> Any:
    return x.sin().cos()


def teacher(nest: Nest, x: Any) -> Any:
    """A call that no backward goes through, and the same region with one."""
    with torch.no_grad():
        target = nest.call(sine, x)
    return nest.call(sine, x) * target


def in_inference_mode(nest: Nest, x: Any) -> Any:
    with torch.inference_mode():
        target = nest.call(sine, x)
    return x * target.clone()


def frozen_part(nest: Nest, x: Any) -> Any:
    """Gradients are off for a region inside another, which a replay of that one enters again."""

    def outer(x: Any) -> Any:
        with torch.no_grad():
            target = nest.call(sine, x)
        return (x.sin() * target).tanh()

    return nest.call(outer, x)


def frozen_nest(nest: Nest, x: Any) -> Any:
    def outer(x: Any) -> Any:
        return nest.call(sine, x).tanh()

    with torch.no_grad():
        target = nest.call(outer, x)
    return x.sin() * target


def nest_in_reentrant(nest: Nest, x: Any) -> Any:
    """Its forward runs with gradients off, whatever the user says, and its replay does not."""

    def outer(x: Any) -> Any:
        return nest.call(sine, x).tanh()

    return nest.call(outer, x, reentrant=True)


def frozen_nest_in_reentrant(nest: Nest, x: Any) -> Any:
    with torch.no_grad():
        target = nest_in_reentrant(nest, x)
    return x.sin() * target


def gradient_inside(nest: Nest, x: Any) -> Any:
    """A gradient taken inside replays the region within its forward, before it makes a call."""

    def outer(x: Any) -> Any:
        (force,) = torch.autograd.grad(x.sin().cos().sum(), x, create_graph=True)
        return nest.call(sine, force).tanh()

    return nest.call(outer, x)


def forward_in_backward(nest: Nest, x: Any) -> Any:
    def again(gradient: Any) -> None:
        with torch.enable_grad():
            given = torch.ones(4, requires_grad=True)
            nest.call(sine, given).sum().backward()

    y = x.sin()
    y.register_hook(again)
    return y


@pytest.mark.parametrize(
    ("step", "counts"),
    [
        (teacher, [(3, 3)]),
        (in_inference_mode, [(1, 1)]),
        (frozen_part, [(2, 2), (2, 2)]),
        (frozen_nest, [(1, 1), (1, 1)]),
        (nest_in_reentrant, [(2, 2), (3, 3)]),
        (frozen_nest_in_reentrant, [(1, 1), (1, 1)]),
    ],
)
def test_no_replay_is_expected_of_a_call_with_gradients_off(
    step: Step, counts: list[tuple[int, int]]
) -> None:
    check(step, counts)


@pytest.mark.parametrize(
    ("step", "counts"),
    [(gradient_inside, [(3, 3), (3, 3)]), (forward_in_backward, [(2, 2)])],
)
def test_a_backward_replays_only_what_was_made_before_it(
    step: Step, counts: list[tuple[int, int]]
) -> None:
    check(step, counts)


def check(step: Step, counts: list[tuple[int, int]]) -> None:
    nest = Nest()
    step(nest, torch.randn(4, requires_grad=True)).sum().backward()
    assert list(nest.counts().values()) == counts


def test_a_replay_is_expected_where_gradients_are_on_and_nothing_is_kept() -> None:
    nest = Nest()
    x = torch.randn(4, requires_grad=True)
    (nest.call(lambda x: x + 1.0, x) * 2).sum().backward()
    assert list(nest.counts().values()) == [(1, 2)]
