"""Profiles of kinds of models that are easily wrong: their peaks beside those of the real step."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="models of PyTorch are profiled")

import torch
from tests.integration.live_storages import LiveStorages
from tests.unit.torch.test_profiling import HIDDEN, ROWS, WIDTH, Block, Model, profiled, table_of
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from haversack.errors import NotSupportedError
from haversack.plan import Plan
from haversack.profile import Profile
from haversack.run import BlockAction
from haversack.torch import Workload, apply, profile, regions
from haversack.torch.kernels import called


def everything_saved(found: Profile) -> int:
    """Add up the highest moment with all blocks saved, states left out, as a plan does."""
    held, kept, peak = found.held_by_caller_bytes, 0, 0
    later = sum(block.gradient_bytes for block in found.blocks)
    for block in found.blocks:
        table = found.tables[block.table]
        later -= block.gradient_bytes
        forward = table.forward_peak_bytes[0]
        peak = max(peak, held + kept + max(forward, later + table.backward_peak_bytes[0]))
        kept += table.retained_bytes[0]
    return peak


def executed(workload: Workload) -> int:
    model: Any = workload.model
    live: Any = LiveStorages([*model.parameters(), *workload.args], states=True)
    with live:
        output = model(*workload.args)
        output.sum().backward()
    peak_bytes: int = live.peak_bytes
    # LiveStorages leaves gradients out.
    return peak_bytes + int(sum(each.grad.nbytes for each in model.parameters()))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(12, 12, batch_first=True) for _ in range(2))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden, _ = layer(hidden)
        return hidden


def test_what_a_recurrent_kernel_keeps_for_its_backward_is_counted() -> None:
    workload = Workload(Recurrent(), args=(torch.randn(4, 32, 12),))
    real = executed(workload)
    assert 0.9 * real <= everything_saved(profile(workload)) <= 1.1 * real


def test_a_grouped_product_has_the_layout_that_the_cpu_gives_it() -> None:
    grouped = torch.ops.aten._grouped_mm.default
    rows, weights = torch.randn(8, 16), torch.randn(2, 16, 24)
    ends = torch.tensor([3, 8], dtype=torch.int32)
    real = called(grouped, (rows, weights), {"offs": ends})
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(each) for each in (rows, weights, ends)]
        fake = called(grouped, fakes[:2], {"offs": fakes[2]})
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


def test_a_block_that_changes_what_a_container_has_in_it_is_saved() -> None:
    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Block()

        def forward(self, given: dict[str, Tensor]) -> None:
            given["hidden"] = self.inner(given["hidden"])

    class Passing(Model):
        def forward(self, hidden: Tensor) -> Tensor:
            given = {"hidden": hidden}
            for layer in self.layers:
                layer(given)
            return given["hidden"]

    found = profiled(Passing(Writing))
    assert found.blocks[1].mutates_inputs
    assert table_of(found, "layers.0").option == ("save",)


class Joined(nn.Module):
    """A block of a dense net: it is given the list of all results so far, which then grows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 4), nn.Tanh())

    def forward(self, results: list[Tensor]) -> Any:
        return self.inner(torch.cat(results, 1))


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Joined(4 * (place + 1)) for place in range(3))

    def forward(self, hidden: Tensor) -> Tensor:
        results = [hidden]
        for layer in self.layers:
            results.append(layer(results))
        return torch.cat(results, 1)


def test_a_block_that_runs_again_has_the_list_as_it_was() -> None:
    model, given = Dense(), torch.randn(16, 4)
    names = ["layers.0", "layers.1", "layers.2"]
    found = profile(Workload(model, args=(given,)))
    assert all("recompute" in table_of(found, name).option for name in names)

    def gradients() -> list[Tensor]:
        model.zero_grad()
        model(given).sum().backward()
        return [each.grad.clone() for each in model.parameters() if each.grad is not None]

    plain = gradients()
    actions = tuple(BlockAction(block=name, option="recompute") for name in names)
    with apply(model, Plan(actions=actions)):
        assert all(map(torch.equal, gradients(), plain))


def test_devices_of_tensors_in_lists_are_told_to_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It keeps the random states of the devices of what it is given, and of no others.
    given: list[tuple[Any, ...]] = []

    def checkpoint(function: Any, *args: Any, **settings: Any) -> Any:
        given.append(args)
        return function(*args)

    monkeypatch.setattr(regions, "checkpoint", checkpoint)
    model, results = Joined(8), [torch.randn(2, 4), torch.randn(2, 4)]
    regions.Region("block", model)(results)
    assert [each is result for each, result in zip(*given, results, strict=True)] == [True, True]


def test_frozen_blocks_at_the_start_are_in_no_segment() -> None:
    model = Model(blocks=4)
    model.layers[:2].requires_grad_(False)
    segments = {each.name: each.segment_bytes for each in profiled(model).blocks}
    assert [segments[f"layers.{place}"] is None for place in range(4)] == [True, True, False, False]


def test_a_parameter_that_is_handed_to_blocks_keeps_no_hook() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Block()

        def forward(self, given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return self.inner(given[0] + given[1]), given[1]

    class Shifting(Model):
        def __init__(self) -> None:
            super().__init__(Shifted)
            self.shift = nn.Parameter(torch.zeros(WIDTH))

        def forward(self, hidden: Tensor) -> Tensor:
            given = hidden, self.shift
            for layer in self.layers:
                given = layer(given)
            return given[0]

    model = Shifting()
    assert "recompute" in table_of(profiled(model), "layers.1").option
    assert not model.shift._backward_hooks


def test_constants_and_their_comparisons_have_values() -> None:
    class Comparing(Model):
        def forward(self, hidden: Tensor) -> Tensor:
            mask = torch.full((4, 4), float("-inf")).triu(1)
            assert (mask == torch.full((4, 4), float("-inf")).triu(1)).all()
            ones = torch.arange(ROWS)[[0, -1]]
            assert int(ones[1]) == ROWS - 1
            assert torch.ones(4, dtype=torch.bool).nonzero().shape == (4, 1)
            return super().forward(hidden)

    assert table_of(profiled(Comparing()), "layers.0").retained_bytes[0] >= HIDDEN


def test_what_is_drawn_into_a_constant_has_no_value() -> None:
    class Drawing(Model):
        def forward(self, hidden: Tensor) -> Tensor:
            return super().forward(hidden if torch.zeros(1).bernoulli_(0.5).all() else -hidden)

    with pytest.raises(NotSupportedError, match="depend on data"):
        profiled(Drawing())


def test_an_optimizer_that_reads_norms_is_stepped_without_data() -> None:
    model = Model()
    optimizer: Any = torch.optim.Adafactor(model.parameters())
    found = profile(Workload(model, args=(torch.ones(ROWS, WIDTH),), optimizer=optimizer))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = [row for rows in optimizer.state.values() for row in rows.values()]
    assert found.optimizer_state_bytes == sum(row.nbytes for row in state)
