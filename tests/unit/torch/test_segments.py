"""Blocks under one checkpoint, called by the model's own loop: the same numbers, fewer bytes."""

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="segments run modules of PyTorch")

import torch
from tests.integration.live_storages import LiveStorages
from torch import Tensor, nn

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.plan import Plan
from haversack.run import BlockAction
from haversack.torch import apply, replay_context
from haversack.torch.segment_runs import Run


class Block(nn.Module):
    """Gives the stream, and a tensor for the blocks after it, as T5 does its position bias."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(16, 64), nn.Linear(64, 16), nn.Dropout(0.3)

    def forward(self, hidden: Tensor, *, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        bias = self.up.bias[:16] * 2 if bias is None else bias
        return hidden + self.drop(self.down(torch.relu(self.up(hidden)))) + bias, bias


class Net(nn.Module):
    """A loop over blocks, perhaps with an operation and a draw between them."""

    def __init__(self, between: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(6))
        self.between = between

    def forward(self, hidden: Tensor) -> Tensor:
        bias = None
        for layer in self.layers:
            if self.between:
                hidden = hidden * torch.rand(1) + 1
            hidden, bias = layer(hidden, bias=bias)
        return hidden.square().mean()


def in_segments(*lengths: int) -> Plan:
    numbers = [number for number, length in enumerate(lengths, 1) for _ in range(length)]
    return Plan(
        actions=tuple(
            BlockAction(block=f"layers.{place}", option="recompute", segment=number)
            for place, number in enumerate(numbers)
        )
    )


def step(model: nn.Module, given: Tensor, times: int = 1) -> tuple[int, list[Tensor]]:
    torch.manual_seed(3)
    tracker: Any = LiveStorages([*model.parameters(), given])
    with tracker:
        loss = model(given)
        for turn in range(times):
            loss.backward(retain_graph=turn < times - 1)
    found = [
        loss.detach(),
        *(each.grad.clone() for each in model.parameters() if each.grad is not None),
    ]
    model.zero_grad()
    return tracker.peak_bytes, found


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("lengths", [(6,), (2, 4), (3, 3)])
def test_segments_compute_the_same_to_the_bit(lengths: tuple[int, ...], between: bool) -> None:
    torch.manual_seed(0)
    model, given = Net(between), torch.randn(256, 16, requires_grad=True)
    plain_bytes, plain = step(model, given)
    with apply(model, in_segments(*lengths)):
        segmented_bytes, segmented = step(model, given)
    assert all(map(torch.equal, segmented, plain))
    assert len(lengths) == 1 or segmented_bytes < plain_bytes
    assert all(map(torch.equal, step(model, given)[1], plain))  # taken back


PATHS = {
    "two in one": ((1,), (1,), (2,), (2,), (), ()),
    "deep": ((1, 1, 1), (1, 1), (1,), (), (2,), ()),
    "single ones": ((1,), (2,), (3,), (4,), (5,), ()),
}


def nested(paths: Sequence[tuple[int, ...]]) -> Plan:
    actions = in_segments(len(paths)).actions
    return Plan(
        actions=tuple(
            replace(action, inner_segments=path)
            for action, path in zip(actions, paths, strict=True)
        )
    )


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("paths", PATHS.values(), ids=PATHS)
def test_segments_in_a_segment_compute_the_same_to_the_bit(
    paths: Sequence[tuple[int, ...]], between: bool
) -> None:
    torch.manual_seed(0)
    model, given = Net(between), torch.randn(256, 16, requires_grad=True)
    _, plain = step(model, given)
    _, twice = step(model, given, times=2)
    with apply(model, in_segments(6)):
        flat_bytes, _ = step(model, given)
    with apply(model, nested(paths)):
        nested_bytes, found = step(model, given)
        assert all(map(torch.equal, found, plain))
        assert all(map(torch.equal, step(model, given, times=2)[1], twice))
    assert nested_bytes < flat_bytes


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (((), (), (), (), (), (1,)), "layers.5 ends a segment and is in one within it"),
        (((1,), (1, 1), (), (), (), ()), "layers.1 ends a segment and is in one within it"),
    ],
)
def test_a_nest_that_would_save_nothing_of_its_last_block_is_refused(
    paths: Sequence[tuple[int, ...]], said: str
) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        apply(Net(), nested(paths))


@pytest.mark.parametrize(
    ("path", "said"),
    [((1,) * 100_000, "100000 segments deep; at most 130"), ((0,), "which begin at 1")],
)
def test_a_path_that_no_plan_has_is_refused(path: tuple[int, ...], said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said) as error:
        apply(Net(), nested((path, (), (), (), (), ())))
    assert error.value.field == "plan.actions[0].inner_segments"


def test_a_nest_without_a_segment_around_it_is_refused() -> None:
    row = BlockAction(block="layers.0", option="recompute", inner_segments=(1,))
    with pytest.raises(InvalidRequestError, match="no segment that another could be in") as error:
        apply(Net(), Plan(actions=(row,)))
    assert error.value.field == "plan.actions[0].inner_segments"


def test_a_second_backward_through_a_segment_runs_it_again() -> None:
    torch.manual_seed(0)
    model, given = Net(), torch.randn(8, 16)
    _, plain = step(model, given, times=2)
    with apply(model, in_segments(3, 3)):
        _, segmented = step(model, given, times=2)
    assert all(map(torch.equal, segmented, plain))


def test_autocast_and_other_generators_are_those_of_the_forward() -> None:
    torch.manual_seed(0)
    model, given = Net(), torch.randn(8, 16)
    generator = torch.Generator().manual_seed(5)
    drawn: list[Tensor] = []
    inner: Any = model.layers[1].drop
    inner.forward = lambda hidden: hidden * drew(generator, drawn)
    with torch.autocast("cpu", torch.bfloat16):
        _, plain = step(model, given)
    generator.manual_seed(5)
    context_fn = replay_context(generators=[generator])
    with apply(model, in_segments(3, 3), context_fn=context_fn):
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(given)
        loss.backward()
    found = [each.grad for each in model.parameters() if each.grad is not None]
    assert torch.equal(loss.detach(), plain[0])
    assert all(map(torch.equal, found, plain[1:]))
    assert torch.equal(drawn[1], drawn[2])


def drew(generator: torch.Generator, drawn: list[Tensor]) -> Tensor:
    drawn.append(torch.rand(1, generator=generator))
    return drawn[-1]


def test_without_gradients_nothing_is_kept_or_asked() -> None:
    model, given = Net().eval(), torch.randn(2, 16)
    plain = model.layers[4](given)
    with apply(model, in_segments(3, 3)), torch.no_grad():
        alone = model.layers[4](given)  # out of turn
    assert torch.equal(alone[0], plain[0])
    assert not alone[0].requires_grad


def test_a_block_out_of_turn_is_refused() -> None:
    model = Net()
    with (
        apply(model, in_segments(3, 3)),
        pytest.raises(NotSupportedError, match=r"layers\.4 is in a segment .* did not run after"),
    ):
        model.layers[4](torch.randn(2, 16, requires_grad=True))


def test_an_input_that_is_changed_afterwards_is_refused() -> None:
    model, given = Net(), torch.randn(8, 16)
    with apply(model, in_segments(6)):
        loss = model(given)
        given.add_(1)
        with pytest.raises(NotSupportedError, match="changed in place"):
            loss.backward()


class Changing(Net):
    """Changes what a block has returned before the next one takes it."""

    def forward(self, hidden: Tensor) -> Tensor:
        bias = None
        for layer in self.layers:
            hidden, bias = layer(hidden, bias=bias)
            hidden += 2
        return hidden.square().mean()


@pytest.mark.parametrize("paths", PATHS.values(), ids=PATHS)
def test_a_result_that_is_changed_in_place_is_kept_as_the_next_block_took_it(
    paths: Sequence[tuple[int, ...]],
) -> None:
    torch.manual_seed(0)
    model, given = Changing(), torch.randn(8, 16)
    _, plain = step(model, given)
    with apply(model, nested(paths)):
        assert all(map(torch.equal, step(model, given)[1], plain))


def test_a_forward_without_a_backward_leaves_nothing_behind() -> None:
    model, given = Net(between=True), torch.randn(8, 16)
    gc.disable()  # what lies in a cycle would go with it, unless PyTorch's graph is part of it
    try:
        with apply(model, in_segments(6)):
            loss: Tensor | None = model(given)
            held: Any = weakref.ref(one(Run))
            loss = None
            assert loss is held() is None
    finally:
        gc.enable()


def one(kind: type) -> Any:
    (found,) = (each for each in gc.get_objects() if type(each) is kind)
    return found


def actions(*rows: tuple[str, int]) -> Plan:
    return Plan(
        actions=tuple(
            BlockAction(block=f"layers.{place}", option=option, segment=segment)
            for place, (option, segment) in enumerate(rows)
        )
    )


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (actions(("recompute", 1), ("selective aten.mm.default:0", 1)), "recomputed as one"),
        (actions(("recompute", 1), ("recompute", 2), ("recompute", 1)), "in two pieces"),
    ],
)
def test_segments_that_are_none_are_refused(plan: Plan, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        apply(Net(), plan)
