"""Regions that take a gradient inside: PyTorch replays them within their own forward."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402

from haversack.verify import DifferenceCause  # noqa: E402
from haversack_server.worker.errors import StepEnded  # noqa: E402
from haversack_server.worker.region_state import StateWatch  # noqa: E402
from haversack_server.worker.regions import Regions  # noqa: E402
from haversack_server.worker.trace import TraceWatch  # noqa: E402
from haversack_server.worker.watch import RandomWatch  # noqa: E402

checkpointed: Any = checkpoint
Region = Callable[[Any], Any]


def force_of(x: Any) -> Any:
    (force,) = torch.autograd.grad((x * 3).sin().sum(), x, create_graph=True)
    return force


class Energy:
    """Takes a force, then counts."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        force = force_of(x)
        self.calls += 1
        return (force * self.calls).sin()


def equal(x: Any) -> Any:
    return force_of(x).sin()


def drawing(x: Any) -> Any:
    return (force_of(x) * torch.rand(3)).sin()


def run(watch: Any, function: Region, **settings: Any) -> Regions:
    """Run a function as a region, forward and backward."""
    regions = Regions({}, direct=False, watchers=[watch])
    regions.to_the_end = getattr(watch, "records", regions.to_the_end)
    x = torch.randn(3, requires_grad=True)
    regions.handle(checkpointed, function, x, use_reentrant=False, **settings).sum().backward()
    return regions


@pytest.mark.parametrize("last_call", [None, 0])
def test_a_replay_within_the_forward_is_not_recorded_as_part_of_it(last_call: int | None) -> None:
    watch = TraceWatch({}, {}, last_call)
    regions = run(watch, equal)
    assert watch.first_difference() is None
    assert [call.entries for call in regions.calls] == [3]


def test_the_operation_behind_an_inner_gradient_is_named() -> None:
    watch = TraceWatch({}, {})
    run(watch, Energy())
    found = watch.first_difference()
    assert found is not None
    assert found.cause is DifferenceCause.SCALAR_ARGUMENT
    assert found.operation == "aten.mul.Tensor"


def test_a_step_does_not_end_within_the_forward_that_it_is_for() -> None:
    watch, energy = TraceWatch({}, {}, last_call=0), Energy()
    with pytest.raises(StepEnded):
        run(watch, energy)
    # The forward, the replay within it, and the one that its backward makes.
    assert energy.calls == 3


@pytest.mark.parametrize("last_call", [None, 0, 1])
def test_an_inner_region_that_an_inner_gradient_replays_is_no_difference(
    last_call: int | None,
) -> None:
    watch = TraceWatch({}, {}, last_call)
    regions = Regions({}, direct=False, watchers=[watch], to_the_end=watch.records)

    def outer(x: Any) -> Any:
        y = regions.handle(checkpointed, lambda x: (x * 3).sin().cos(), x, use_reentrant=False)
        (force,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return force.sin()

    x = torch.randn(3, requires_grad=True)
    regions.handle(checkpointed, outer, x, use_reentrant=False).sum().backward()
    assert watch.first_difference() is None


def test_what_the_forward_does_after_such_a_replay_is_the_forwards() -> None:
    random = RandomWatch({})
    run(random, drawing)
    (source,) = random.sources()
    assert (source.drawn_in_forward, source.drawn_in_replay) == (True, True)
    state = StateWatch({})
    run(state, Energy())
    (change,) = state.found()
    assert (change.name, change.by_replay) == ("function.calls", False)
    assert (change.before, change.after) == ("0", "1")


class Filled:
    """Multiplies by memory that numpy fills, from a generator that replays go on with."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make
        self.factors = iter((1.0, 2.0, 3.0))

    def __call__(self, x: Any) -> Any:
        memory = self.make(3)
        memory.numpy()[:] = next(self.factors)
        return (memory * x).sin()


@pytest.mark.parametrize("make", [torch.zeros, torch.empty])
def test_memory_that_numpy_writes_is_looked_at_again(make: Callable[[int], Any]) -> None:
    watch = TraceWatch({}, {})
    run(watch, Filled(make))
    found = watch.first_difference()
    assert found is not None
    assert (found.cause, found.operation) == (DifferenceCause.EXTERNAL_TENSOR, "aten.mul.Tensor")


def test_an_operation_of_a_replay_has_the_module_that_its_function_is_given() -> None:
    block = torch.nn.Linear(3, 3)
    calls = iter((1, 2))

    def region(module: Any, x: Any) -> Any:
        y = x * 2 if next(calls) > 1 else x
        return module(y).sin()

    watch = TraceWatch({id(block): "block"}, {})
    regions = Regions({}, direct=False, watchers=[watch], to_the_end=watch.records)
    x = torch.randn(2, 3, requires_grad=True)
    regions.handle(checkpointed, region, block, x, use_reentrant=False).sum().backward()
    found = watch.first_difference()
    assert found is not None
    assert found.cause is DifferenceCause.EXTRA_OPERATIONS
    assert (found.module, found.operation) == ("block", "aten.mul.Tensor")


def test_every_region_keeps_its_first_changes_however_many_regions_there_are() -> None:
    class Block:
        def __init__(self) -> None:
            self.first, self.second = 0, 0

        def __call__(self, x: Any) -> Any:
            self.first += 1
            self.second += 1
            return (x * 2).sin()

    watch = StateWatch({})
    names = [f"block {number}" for number in range(80)]
    blocks = {name: Block() for name in names}
    regions = Regions({id(block): name for name, block in blocks.items()}, False, watchers=[watch])
    y = torch.ones(3, requires_grad=True)
    for block in blocks.values():
        y = regions.handle(checkpointed, block, y, use_reentrant=False)
    y.sum().backward()
    found = watch.found()
    assert [change.region for change in found] == names
    assert {change.name for change in found} == {"function.first"}


def test_of_what_all_calls_of_a_region_find_changed_the_first_calls_is_kept() -> None:
    watch, counts = StateWatch({}), {"calls": 0}
    regions = Regions({}, direct=False, watchers=[watch])

    def region(x: Any) -> Any:
        counts["calls"] += 1
        return (x * 2).sin()

    y = torch.ones(3, requires_grad=True)
    for _ in range(3):
        y = regions.handle(checkpointed, region, y, use_reentrant=False)
    y.sum().backward()
    (change,) = watch.found()
    assert (change.before, change.after) == ("0", "5")
