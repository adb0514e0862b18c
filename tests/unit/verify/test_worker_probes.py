"""The probes inside regions: saved values, state, memory that nothing has written."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import nn  # noqa: E402
from torch.utils import checkpoint  # noqa: E402

from haversack.torch import Workload  # noqa: E402
from haversack.verify import DifferenceCause  # noqa: E402
from haversack_server.worker import region_state  # noqa: E402
from haversack_server.worker.buffer_writes import BufferWatch  # noqa: E402
from haversack_server.worker.errors import StepEnded  # noqa: E402
from haversack_server.worker.leaves import find_leaves  # noqa: E402
from haversack_server.worker.probes import Probe, probes_of  # noqa: E402
from haversack_server.worker.region_state import StateWatch, module_paths  # noqa: E402
from haversack_server.worker.regions import Call, Regions  # noqa: E402
from haversack_server.worker.saved import SavedWatch  # noqa: E402
from haversack_server.worker.trace import TraceWatch  # noqa: E402

CHECKS = "_allowed_determinism_checks_to_fns"
checkpointed: Any = checkpoint.checkpoint
SETTINGS = {"use_reentrant": False}


@pytest.fixture(autouse=True)
def own_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the probe fill a copy of PyTorch's table."""
    monkeypatch.setattr(checkpoint, CHECKS, dict(getattr(checkpoint, CHECKS)))


def run(
    watch: Any, function: Callable[..., Any], *args: Any, between: Any = None, **settings: Any
) -> None:
    """Run a function as a region, forward and backward."""
    renamed = watch.renamed if isinstance(watch, SavedWatch) else None
    regions = Regions({}, direct=False, renamed_check=renamed, watchers=[watch])
    output = regions.handle(checkpointed, function, *args, **{**SETTINGS, **settings})
    if between:
        between()
    output.sum().backward()


def saved(function: Callable[..., Any], **settings: Any) -> tuple[int, int, int]:
    watch = SavedWatch()
    watch.install()
    run(watch, function, torch.randn(4, requires_grad=True), **settings)
    (found,) = watch.found()
    return found.saved_count, found.compared_count, found.different_count


def test_a_replay_that_saves_the_same_differs_in_nothing() -> None:
    assert saved(lambda x: (x.sin() * 2).cos()) == (2, 2, 0)


@pytest.mark.parametrize("check", ["default", "none"])
def test_values_that_differ_are_counted_whatever_the_check(check: str) -> None:
    factor = iter([1.0, 2.0])
    assert saved(lambda x: (x.sin() * next(factor)).cos(), determinism_check=check) == (2, 2, 1)


def test_what_the_check_refuses_is_refused_in_its_own_words() -> None:
    sizes = iter([4, 3])
    pattern = r"saved metadata: \{'shape': torch.Size\(\[4\]\)"
    with pytest.raises(checkpoint.CheckpointError, match=pattern):
        saved(lambda x: x[: next(sizes)].sin())


def test_memory_that_nothing_has_written_is_not_compared() -> None:
    assert saved(lambda x: x * torch.empty(4)) == (1, 0, 0)
    rrelu: Any = nn.RReLU(0.1)  # it saves its noise before it draws it
    assert saved(lambda x: rrelu(x.sin()).cos()) == (4, 3, 0)


def test_the_probe_does_not_disturb_selective_checkpointing() -> None:
    weight = torch.randn(4, 4, requires_grad=True)

    def context() -> Any:
        create: Any = checkpoint.create_selective_checkpoint_contexts
        return create([torch.ops.aten.mm.default])

    found = saved(lambda x: (x.sin()[None] @ weight).cos(), context_fn=context)
    assert found[0] == found[1] > 0
    assert found[2] == 0


def test_without_the_table_there_is_no_probe_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(checkpoint, CHECKS)
    nothing = find_leaves(Workload(len))
    probes = probes_of(frozenset({Probe.SAVED}), None, nothing, checkpointed=True)
    assert probes.renamed_check is None
    (said,) = probes.notes()
    assert "no place for the probe of saved values" in said


def three_regions(watch: Any, *, to_the_end: Any = None) -> Regions:
    """Run three regions after each other; the last two draw masks that replays draw anew."""
    renamed = watch.renamed if isinstance(watch, SavedWatch) else None
    regions = Regions({}, direct=False, renamed_check=renamed, watchers=[watch])
    regions.to_the_end = to_the_end or regions.to_the_end
    x = torch.randn(8, requires_grad=True)
    for rate in (0.0, 0.5, 0.5):
        settings = {**SETTINGS, "preserve_rng_state": False}
        x = regions.handle(checkpointed, lambda x, rate=rate: _masked(x, rate), x, **settings)
    with contextlib.suppress(StepEnded):
        x.sum().backward()
    return regions


def _masked(x: Any, rate: float) -> Any:
    return (x.sin() * (torch.rand(8) if rate else 1)).cos().tanh()


def test_the_first_call_that_differs_is_the_first_of_the_forward() -> None:
    watch = SavedWatch()
    watch.install()
    three_regions(watch)
    assert watch.first_different_call == 1


def test_a_trace_up_to_a_call_finds_what_a_whole_one_finds() -> None:
    whole, short = TraceWatch({}, {}), TraceWatch({}, {}, last_call=1)
    three_regions(whole)
    three_regions(short)
    found = whole.first_difference()
    assert found is not None
    assert (found.cause, found.operation) == (DifferenceCause.RNG, "aten.rand.default")
    assert short.first_difference() == found


def test_only_replays_that_are_traced_run_to_their_end() -> None:
    watch = TraceWatch({}, {}, last_call=0)
    regions = three_regions(watch, to_the_end=watch.records)
    assert [call.completions for call in regions.calls] == [2, 1, 1]


def test_a_traced_step_ends_with_the_replay_that_it_was_for() -> None:
    ends = [
        [call.entries for call in three_regions(TraceWatch({}, {}, n)).calls] for n in (0, 1, 2)
    ]
    # The first call's replay is like its forward, and the step goes on.
    assert ends == [[2, 2, 2], [1, 2, 2], [1, 1, 2]]


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.mean: Any
        self.register_buffer("mean", torch.zeros(2))
        self.big = torch.zeros(2**15)

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return (x * 2).sin()


def changes(model: Counting, between: Any = None) -> dict[str, tuple[bool, str, str]]:
    watch = StateWatch(module_paths(nn.ModuleDict({"block": model})))
    run(watch, model, torch.ones(2, requires_grad=True), between=between)
    return {each.name: (each.by_replay, each.before, each.after) for each in watch.found()}


def test_state_that_a_replay_finds_changed_is_named_with_both_values() -> None:
    assert changes(Counting()) == {"model.block.calls": (False, "0", "1")}


def test_buffers_and_large_tensors_are_seen_too() -> None:
    model = Counting()

    def change() -> None:
        model.mean.add_(1)
        model.big.add_(1)

    found = changes(model, change)
    assert found.keys() == {"model.block.calls", "model.block.mean", "model.block.big"}
    assert found["model.block.big"][1:] == (
        "tensor torch.float32 (32768,) memory 1 version 0",
        "tensor torch.float32 (32768,) memory 1 version 1",
    )


def test_what_the_replay_itself_changes_is_told_apart() -> None:
    log: list[int] = []

    def region(x: Any) -> Any:
        if torch._C._current_graph_task_id() >= 0:
            log.append(1)
        return (x * 2).sin()

    watch = StateWatch({})
    run(watch, region, torch.ones(2, requires_grad=True))
    (change, *_) = watch.found()
    assert (change.name, change.by_replay) == ("function.log", True)
    assert (change.before, change.after) == ("list of 0", "list of 1")


@pytest.mark.parametrize("features", [2, 2**15])
def test_a_buffer_that_a_replay_writes_is_named_and_none_that_only_its_forward_does(
    features: int,
) -> None:
    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(2)
            self.mean: Any
            self.register_buffer("mean", torch.zeros(features))
            self.register_buffer("outside", torch.zeros(features))

        def forward(self, x: Any) -> Any:
            self.mean.mul_(0.5).add_(1)
            return self.norm(x).sin().cos()

    model: Any = Watched()
    watch = BufferWatch({"": model, "loss": nn.BatchNorm1d(3)})
    given = torch.ones(3, 2, requires_grad=True)
    run(watch, model, given, between=lambda: model.outside.add_(1))
    (normed, *others) = watch.found()
    assert normed == "mean"
    assert others == ["norm.num_batches_tracked", "norm.running_mean", "norm.running_var"]


def watched(model: Any, given: Any, stands: bool = True) -> tuple[str, ...]:
    """Name what replays of a model write, as a run's probe does."""
    leaves = find_leaves(Workload(model))
    watch = BufferWatch(leaves.modules, leaves.stood if stands else {}, leaves.parameters)
    run(watch, model, given)
    return watch.found()


class Keeping(nn.Module):
    """Keeps its last result in a buffer, which a replay writes to the same bits."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.last: Any
        self.register_buffer("last", torch.zeros(size))
        self.taught = nn.Parameter(torch.zeros(size), requires_grad=False)

    def forward(self, x: Any) -> Any:
        self.last.copy_(x.detach())
        self.taught.add_(1)
        return (x * 2).sin()


@pytest.mark.parametrize("size", [2, 2**15])
@pytest.mark.parametrize("stands", [True, False])
def test_what_is_written_to_what_it_held_is_not_named_however_large(
    size: int, stands: bool
) -> None:
    assert watched(Keeping(size), torch.ones(size, requires_grad=True), stands) == ("taught",)


class Renewing(nn.Module):
    """Writes one trained weight in every forward, another to the bits that it held."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.decayed, self.held, self.unused = (nn.Parameter(torch.ones(size)) for _ in range(3))

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            self.decayed.mul_(0.5)
            self.held.mul_(1)
        return (x * 2).sin()


@pytest.mark.parametrize("size", [2, 2**15])
def test_a_trained_weight_that_a_replay_writes_is_named(size: int) -> None:
    assert watched(Renewing(size), torch.ones(size, requires_grad=True)) == ("decayed",)


def test_layers_without_a_shape_are_looked_at_by_both_probes() -> None:
    model: Any = nn.ModuleDict({"used": Counting(), "unused": nn.LazyBatchNorm1d()})
    model.forward = model["used"].forward
    model.unused.late = nn.UninitializedParameter(requires_grad=False)
    assert watched(model, torch.ones(2, requires_grad=True)) == ()
    watch = StateWatch(module_paths(model))
    run(watch, lambda x: model(x), torch.ones(2, requires_grad=True))
    assert [change.name for change in watch.found()] == ["model.used.calls"]


def test_a_region_that_reaches_too_much_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region_state, "MOST_THINGS", 10)
    watch = StateWatch({})
    many = [str(number) for number in range(50)]
    watch.entered(Call("region", 1, False), {"function": len, "args": (many,), "kwargs": {}})
    assert watch.truncated
