"""Profiles of chains: equal blocks run once, tensors between blocks are charged once, no more."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are profiled")

import torch
from torch import Tensor, nn

from haversack.errors import InvalidRequestError, NotSupportedError
from haversack.profile import OptionTable, Profile
from haversack.torch import Workload, profile, runs
from haversack.torch.repeats import Repeats
from haversack.torch.states import state_bytes

ROWS, WIDTH = 16, 8
HIDDEN = 4 * ROWS * WIDTH  # bytes of one tensor between blocks


class Block(nn.Module):
    """A product and an activation; the fifth has another order."""

    def __init__(self, place: int, odd: int | None = None) -> None:
        super().__init__()
        self.linear: Any = nn.Linear(WIDTH, WIDTH)
        self.is_odd = place == odd

    def forward(self, hidden: Tensor) -> Tensor:
        if self.is_odd:
            return torch.as_tensor(self.linear(torch.tanh(hidden)))
        return torch.tanh(self.linear(hidden))


class Chain(nn.Module):
    """Blocks with something between them, and perhaps a skip over all of them."""

    def __init__(self, blocks: int, *, odd: int | None = None, skips: bool = False) -> None:
        super().__init__()
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.layers: Any = nn.ModuleList(Block(place, odd) for place in range(blocks))
        self.skips = skips

    def forward(self, hidden: Tensor) -> Tensor:
        first = hidden = self.stem(hidden)
        for layer in self.layers:
            hidden = torch.sigmoid(layer(hidden)) * 2
        return hidden * first if self.skips else hidden


class Nested(nn.Module):
    """A net of the shape of a U: each block on the way up reads what one on the way down made."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(place) for place in range(10))

    def forward(self, hidden: Tensor) -> Tensor:
        skips = []
        for layer in self.layers[:5]:
            hidden = layer(hidden)
            skips.append(hidden)
        for layer in self.layers[5:]:
            hidden = layer(hidden * skips.pop())
        return hidden


class Lingering(Chain):
    """Holds a tensor in a variable for long, and never reads it."""

    def forward(self, hidden: Tensor) -> Tensor:
        held = hidden = self.stem(hidden)
        for place, layer in enumerate(self.layers):
            if place == 7:
                held = None
            hidden = layer(torch.sigmoid(hidden) * 2)
        assert held is None
        return hidden


def tied(model: Chain) -> Chain:
    model.layers[9].linear.weight = model.layers[3].linear.weight
    return model


def frozen(model: Chain) -> Chain:
    for layer in model.layers[:6]:
        layer.requires_grad_(False)
    return model


def workload(model: nn.Module) -> Workload:
    return Workload(model, args=(torch.ones(ROWS, WIDTH),))


class Counted(Repeats):
    """Notes how many blocks had a stand-in."""

    replaced = 0

    def __init__(self, keys: Any, needed: Any = ()) -> None:
        super().__init__(keys, needed)
        Counted.replaced = sum(not self.is_run(part) for part in range(1, len(keys), 2))


@pytest.mark.parametrize(
    ("model", "replaced"),
    [
        (lambda: Chain(14, odd=5), range(2, 7)),
        pytest.param(Nested, range(1), marks=pytest.mark.slow),
        pytest.param(lambda: Chain(14), range(7, 12), marks=pytest.mark.slow),
        pytest.param(lambda: Chain(14, skips=True), range(7, 12), marks=pytest.mark.slow),
        pytest.param(lambda: frozen(Chain(14)), range(2, 9), marks=pytest.mark.slow),
        pytest.param(lambda: tied(Chain(14)), range(6), marks=pytest.mark.slow),
        pytest.param(lambda: Lingering(16), range(2, 8), marks=pytest.mark.slow),
    ],
)
def test_a_profile_is_the_same_whether_equal_blocks_run_once_or_each(
    model: Callable[[], nn.Module], replaced: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = workload(model())
    monkeypatch.setattr(runs, "Repeats", Counted)
    once = profile(given)
    assert Counted.replaced in replaced
    distinct = itertools.count()

    def each(keys: list[str], needed: Any = ()) -> Repeats:
        return Repeats([f"{key} {next(distinct)}" for key in keys], needed)

    monkeypatch.setattr(runs, "Repeats", each)
    assert profile(given) == once


def test_the_steps_after_the_first_forward_do_not_grow_with_depth() -> None:
    def calls(blocks: int) -> int:
        counted = 0

        class Counting(Block):
            def forward(self, hidden: Tensor) -> Tensor:
                nonlocal counted
                counted += 1
                return super().forward(hidden)

        model = Chain(blocks)
        model.layers = nn.ModuleList(Counting(place) for place in range(blocks))
        profile(workload(model))
        return counted - blocks  # the first forward runs each once

    assert calls(13) == calls(9)


def table_of(found: Profile, name: str) -> OptionTable:
    return next(found.tables[block.table] for block in found.blocks if block.name == name)


def test_a_tensor_that_nobody_keeps_is_charged_to_nobody() -> None:
    found = profile(workload(Chain(4)))
    # Sigmoid keeps its result; the doubled one is kept by the next block, whatever its option.
    assert table_of(found, "(after layers.1)").retained_bytes == (2 * HIDDEN,)
    # A recomputed block's result is kept neither by the block nor by sigmoid.
    assert table_of(found, "layers.1").retained_bytes[:2] == (HIDDEN, state_bytes())


def test_a_block_that_is_charged_for_its_input_is_in_no_segment() -> None:
    class Residual(nn.Module):
        """A frozen product keeps no input, and a sum no result: recomputed, it is the taker's."""

        def __init__(self, *, trained: bool) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(trained)

        def forward(self, hidden: Tensor) -> Tensor:
            return hidden + torch.tanh(self.linear(hidden))

    def in_segments(*, trained: bool) -> set[bool]:
        layers = nn.Sequential(*(Residual(trained=trained) for _ in range(3)))
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), *layers)
        blocks = ["1", "2", "3"]
        found = profile(workload(model), blocks=blocks).blocks
        return {each.segment_bytes is not None for each in found if each.name in blocks}

    assert in_segments(trained=False) == {False}
    assert in_segments(trained=True) == {True}


def test_progress_is_told_step_by_step() -> None:
    told: list[tuple[str, int, int]] = []
    profile(workload(Chain(2)), progress=lambda *each: told.append(each))
    what = ["a first forward", "save", "recompute", "selective", "selective", "segments"]
    assert [each for each, _, _ in told] == what
    assert [done for _, done, _ in told] == list(range(6))
    assert {steps for _, _, steps in told[1:]} == {6}


def test_a_model_on_meta_has_the_profile_of_a_real_one() -> None:
    with torch.device("meta"):
        model = Chain(3)
    assert profile(workload(model)) == profile(workload(Chain(3)))
    assert all(each.is_meta for each in model.parameters())


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (lambda: nn.Sequential(Block(0), Block(1)), ["0", "1"]),
        (
            lambda: nn.Sequential(nn.Sequential(Block(0), Block(1)), nn.Sequential(Block(2))),
            ["0", "1"],
        ),
        (lambda: Named(), ["members.a", "members.b"]),
        (lambda: Pair(), ["first", "second"]),
        (lambda: Outer(Pair()), ["inner.first", "inner.second"]),
    ],
)
def test_blocks_are_found_without_a_list(model: Callable[[], nn.Module], names: list[str]) -> None:
    found = profile(workload(model()))
    assert [each.name for each in found.blocks if each.fingerprint] == names


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(0), Block(1)

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.second(self.first(hidden))
        return result


class Named(nn.Module):
    """Blocks in a dict, beside one that is in none."""

    def __init__(self) -> None:
        super().__init__()
        self.members = nn.ModuleDict({"a": Block(0), "b": Block(1)})
        self.last = Block(2)

    def forward(self, hidden: Tensor) -> Tensor:
        for block in self.members.values():
            hidden = block(hidden)
        result: Tensor = self.last(hidden)
        return result


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.inner(hidden)
        return result


class Masked(Chain):
    """Looks at its mask, as models of transformers do, and at positions that it makes itself."""

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        positions = torch.arange(hidden.shape[0])
        assert (positions.diff() == 1).all()
        if mask is not None and not mask.all():
            hidden = hidden * mask[:, None]
        return super().forward(hidden)


def masks() -> Iterator[tuple[Tensor, int]]:
    full = torch.ones(ROWS, dtype=torch.long)
    padded = full.clone()
    padded[-1] = 0
    yield full, 0
    yield padded, HIDDEN


def test_a_path_that_whole_numbers_decide_is_that_of_the_given_ones() -> None:
    hidden = torch.ones(ROWS, WIDTH)
    plain = profile(Workload(Masked(2), args=(hidden,)))
    assert not any(block.data_dependent for block in plain.blocks)
    for mask, kept_bytes in masks():
        found = profile(Workload(Masked(2), args=(hidden, mask)))
        first, before = found.blocks[0], plain.blocks[0]
        assert first.data_dependent
        assert not any(block.data_dependent for block in found.blocks[1:])
        retained = (found.tables[first.table], plain.tables[before.table])
        assert retained[0].retained_bytes[0] - retained[1].retained_bytes[0] == kept_bytes


def test_a_mask_without_values_is_refused() -> None:
    mask = torch.ones(ROWS, dtype=torch.long, device="meta")
    with pytest.raises(NotSupportedError, match="depend on data"):
        profile(Workload(Masked(2), args=(torch.ones(ROWS, WIDTH), mask)))


def test_what_something_unknown_was_written_to_has_no_value() -> None:
    class Written(Masked):
        def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
            assert mask is not None
            mask[:1] = hidden[:1, 0] > 0
            return super().forward(hidden, mask)

    mask = torch.ones(ROWS, dtype=torch.long)
    with pytest.raises(NotSupportedError, match="depend on data"):
        profile(Workload(Written(2), args=(torch.ones(ROWS, WIDTH), mask)))
    assert mask.all()


def test_a_single_layer_is_no_chain() -> None:
    with pytest.raises(InvalidRequestError, match="name them"):
        profile(workload(nn.Linear(WIDTH, WIDTH)))
