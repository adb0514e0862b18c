"""Random sources outside PyTorch are replayed: equal gradients to the bit, and no trace left."""

import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("numpy", reason="its generators are replayed")
pytest.importorskip("torch", reason="it is torch.utils.checkpoint that recomputes")

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from haversack.errors import InvalidRequestError
from haversack.torch import replay_context
from haversack.torch.replay import ContextFn

ROWS, WIDTH = 4, 6
Region = Callable[[Tensor], Tensor]


class Sources:
    """One generator of each kind, seeded alike."""

    def __init__(self) -> None:
        self.torch = torch.Generator().manual_seed(1)
        self.python = random.Random(2)
        self.numpy = np.random.default_rng(3)
        self.old_numpy = np.random.RandomState(4)
        random.seed(5)
        np.random.seed(6)
        torch.manual_seed(7)

    def all(self) -> list[Any]:
        return [self.torch, self.python, self.numpy, self.old_numpy]

    def states(self) -> list[str]:
        held: list[Any] = [self.torch.get_state().tolist(), self.python.getstate()]
        held += [self.numpy.bit_generator.state, self.old_numpy.get_state(legacy=False)]
        held += [random.getstate(), np.random.get_state(legacy=False)]
        with np.printoptions(threshold=10_000):
            return [repr(each) for each in (*held, torch.get_rng_state().tolist())]

    def draws(self) -> dict[str, Callable[[], Tensor]]:
        shape = (ROWS, WIDTH)
        count = ROWS * WIDTH
        return {
            "torch": lambda: torch.rand(shape, generator=self.torch),
            "python": lambda: torch.tensor([self.python.random() for _ in range(count)]),
            "numpy": lambda: torch.from_numpy(self.numpy.random(count)),
            "old numpy": lambda: torch.from_numpy(self.old_numpy.random_sample(count)),
            "random": lambda: torch.tensor([random.random() for _ in range(count)]),
            "numpy.random": lambda: torch.from_numpy(np.random.random_sample(count)),
            "torch's default": lambda: torch.rand(shape),
        }


DRAWS = list(Sources().draws())


def dropout_by(draw: Callable[[], Tensor], weight: Tensor) -> Region:
    """A region that keeps about half of its values, as the numbers decide."""

    def region(hidden: Tensor) -> Tensor:
        mask = draw().reshape(ROWS, WIDTH) < 0.5
        return torch.tanh(hidden @ weight) * mask

    return region


def gradients(
    build: Callable[[Sources, Tensor], Region], context: Callable[[Sources], ContextFn] | None
) -> tuple[Tensor, Tensor, list[str]]:
    """Run two regions, one after the other; gives gradients, and the states after backward."""
    sources = Sources()
    weight = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(0))
    hidden = torch.ones(ROWS, WIDTH, requires_grad=True)
    region = build(sources, weight.requires_grad_())
    result = hidden
    for _ in range(2):
        if context is None:
            result = region(result)
        else:
            result = checkpoint(region, result, use_reentrant=False, context_fn=context(sources))
    torch.autograd.backward(result.sum())
    assert hidden.grad is not None
    assert weight.grad is not None
    return hidden.grad, weight.grad, sources.states()


def everything(sources: Sources) -> ContextFn:
    return replay_context(generators=sources.all())


def assert_equal(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])
    assert one[2] == other[2]


@pytest.mark.parametrize("name", DRAWS)
def test_dropout_by_any_source_has_equal_gradients_and_leaves_equal_states(name: str) -> None:
    def build(sources: Sources, weight: Tensor) -> Region:
        return dropout_by(sources.draws()[name], weight)

    assert_equal(gradients(build, None), gradients(build, everything))


@pytest.mark.parametrize("name", [each for each in DRAWS if each != "torch's default"])
def test_without_it_the_gradients_are_others(name: str) -> None:
    def build(sources: Sources, weight: Tensor) -> Region:
        return dropout_by(sources.draws()[name], weight)

    def nothing(sources: Sources) -> ContextFn:
        return replay_context(python=False, numpy=False)

    assert not torch.equal(gradients(build, None)[0], gradients(build, nothing)[0])


def test_nested_regions_replay_each_their_own_numbers() -> None:
    def nested(sources: Sources, weight: Tensor, inside: bool) -> Region:
        draws = [sources.draws()[name] for name in ("python", "numpy", "random")]
        inner = [dropout_by(draw, weight) for draw in draws]

        def region(hidden: Tensor) -> Tensor:
            for each in inner:
                hidden = (
                    checkpoint(each, hidden, use_reentrant=False, context_fn=everything(sources))
                    if inside
                    else each(hidden)
                )
            return hidden * float(sources.python.random())

        return region

    plain = gradients(lambda sources, weight: nested(sources, weight, False), None)
    assert_equal(plain, gradients(lambda s, w: nested(s, w, True), everything))
    assert_equal(plain, gradients(lambda s, w: nested(s, w, True), None))


def test_an_early_stop_leaves_the_states_as_they_were() -> None:
    completed: list[None] = []

    def build(sources: Sources, weight: Tensor) -> Region:
        inner = dropout_by(sources.draws()["numpy"], weight)

        def region(hidden: Tensor) -> Tensor:
            result = inner(hidden)
            sources.python.random()  # after the last saved tensor: a recomputation stops before it
            completed.append(None)
            return result

        return region

    plain = gradients(build, None)
    completed.clear()
    assert_equal(plain, gradients(build, everything))
    assert len(completed) == 2  # two forwards; both recomputations stopped early


def test_a_second_backward_replays_the_same_numbers() -> None:
    sources = Sources()
    weight = torch.ones(WIDTH, WIDTH, requires_grad=True)
    hidden = torch.ones(ROWS, WIDTH, requires_grad=True)
    region = dropout_by(sources.draws()["python"], weight)
    result = checkpoint(region, hidden, use_reentrant=False, context_fn=everything(sources)).sum()
    states = sources.states()
    first = torch.autograd.grad(result, hidden, retain_graph=True)[0]
    random.random()
    second = torch.autograd.grad(result, hidden)[0]
    assert torch.equal(first, second)
    assert sources.states()[:4] == states[:4]


def test_a_failing_recomputation_puts_the_states_back() -> None:
    sources = Sources()
    entered: list[None] = []

    def region(hidden: Tensor) -> Tensor:
        sources.python.random()
        if entered:
            raise ValueError("the second time")
        entered.append(None)
        return torch.tanh(hidden)

    hidden = torch.ones(ROWS, WIDTH, requires_grad=True)
    result = checkpoint(region, hidden, use_reentrant=False, context_fn=everything(sources))
    states = sources.states()
    with pytest.raises(ValueError, match="second time"):
        result.sum().backward()
    assert sources.states() == states


@pytest.mark.parametrize("thing", [random.SystemRandom(), np.random, "cpu"])
def test_what_has_no_state_is_refused_with_its_place(thing: Any) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be restored") as caught:
        replay_context(generators=[random.Random(0), thing])
    assert caught.value.field == "generators[1]"
