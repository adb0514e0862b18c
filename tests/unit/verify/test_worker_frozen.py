"""Parameters that ask for no gradient: as buffers where a run writes them, else by a digest."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import nn  # noqa: E402

from haversack.torch import Workload  # noqa: E402
from haversack.verify import Facet  # noqa: E402
from haversack_server.verify.comparison import Closeness, Row  # noqa: E402
from haversack_server.worker import compare, reach  # noqa: E402
from haversack_server.worker.leaves import Leaves, find_leaves, roots  # noqa: E402
from haversack_server.worker.state import snapshot  # noqa: E402

BUFFERS = Facet.BUFFERS.name
Change = Callable[[Any], object]


class Taught(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Linear(4, 4).requires_grad_(False)
        self.kept: list[Any] = []


def after(change: Change) -> tuple[Leaves, dict[str, Any]]:
    """Look a model through, change it as a step may, and give what it leaves."""
    torch.manual_seed(0)
    model = Taught()
    leaves = find_leaves(Workload(model))
    change(model)
    return leaves, {name: dict(held) for name, held in leaves.values([], []).items()}


def rows(plain: Change, other: Change) -> list[Row]:
    _, kept = after(plain)
    leaves, own = after(other)
    named = leaves.as_in(kept, own)[BUFFERS]
    return list(compare.rows(Facet.BUFFERS, kept[BUFFERS], named))


def nothing(model: Any) -> None: ...


def writes(factor: float) -> Change:
    return lambda model: model.teacher.weight.mul_(factor)


def writes_uncounted(factor: float) -> Change:
    return lambda model: model.teacher.weight.data.mul_(factor)


@pytest.mark.parametrize("change", [writes(2.0), writes_uncounted(2.0), writes(1.0)])
def test_only_what_was_written_is_kept_as_a_tensor(change: Change) -> None:
    _, left = after(change)
    kept = {name: type(value) for name, value in left[BUFFERS].items()}
    assert kept == {"teacher.weight": torch.Tensor, "teacher.bias": str}


@pytest.mark.parametrize(
    ("plain", "other", "closeness"),
    [
        (writes(2.0), writes(2.0 * (1 + 2**-23)), Closeness.CLOSE),
        (writes(2.0), writes(3.0), Closeness.DIFFERENT),
        (writes(1 + 2**-23), nothing, Closeness.CLOSE),
        (writes(2.0), nothing, Closeness.DIFFERENT),
        (nothing, writes(2.0), Closeness.DIFFERENT),
    ],
)
def test_what_a_run_writes_has_the_tolerance_of_buffers(
    plain: Change, other: Change, closeness: Closeness
) -> None:
    (row,) = rows(plain, other)
    assert (row.name, row.closeness) == ("teacher.weight", closeness)


@pytest.mark.parametrize("same", [writes(1.0), writes_uncounted(1.0), nothing])
def test_what_is_written_to_what_it_was_is_equal_whichever_run_writes_it(same: Change) -> None:
    assert not rows(same, nothing)
    assert not rows(nothing, same)


def state_after(change: Change) -> set[str]:
    """Name the state that a change to a model makes differ, beside what leaves compare."""
    model: Any = Taught()
    workload = Workload(model)
    leaves = find_leaves(workload)
    model.kept.append(nn.Linear(2, 2).requires_grad_(False))  # by the step itself
    model.teacher.weight.calls = 0
    found = []
    for each in (nothing, change):
        each(model)
        found.append(snapshot(roots(workload), elsewhere=leaves.frozen_ids()).values)
    before, now = found
    return {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}


def test_of_what_leaves_compare_attributes_alone_are_state() -> None:
    def change(model: Any) -> None:
        model.teacher.weight.mul_(2)
        model.teacher.weight.calls += 1

    assert state_after(change) == {"model.teacher.weight.calls"}


def test_frozen_parameters_of_a_module_that_the_step_made_are_state() -> None:
    assert state_after(lambda model: model.kept[0].bias.add_(1)) == {"model.kept[0].bias"}


def test_buffers_and_parameters_without_a_shape_are_compared_as_such() -> None:
    def unused(model: Any) -> None:
        model.late = nn.LazyBatchNorm1d()
        model.late.frozen = nn.UninitializedParameter(requires_grad=False)

    assert not rows(unused, unused)
    left = after(unused)[1][BUFFERS]
    assert left["late.running_mean"] == "tensor torch.float32 no shape yet "
    assert left["late.frozen"] == "tensor torch.float32 no shape yet "


def test_to_look_for_leaves_digests_each_parameter_once(monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[int] = []
    digest = reach.tensor_digest

    def counted(tensor: Any, **how: bool) -> tuple[str, str]:
        digested.append(id(tensor))
        return digest(tensor, **how)

    monkeypatch.setattr(reach, "tensor_digest", counted)
    model = Taught()
    model.head = nn.Linear(4, 4)
    find_leaves(Workload(model))
    assert sorted(digested) == sorted(map(id, model.parameters()))


class Student(nn.Module):
    """Trained weights, which its own steps may write."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)


def weights_after(change: Change) -> tuple[dict[str, type], set[str]]:
    """Give what a change to a trained model leaves among buffers, and what of it is still state."""
    torch.manual_seed(0)
    model = Student()
    workload = Workload(model)
    leaves = find_leaves(workload)
    change(model)
    state = snapshot(roots(workload))
    left = leaves.values([], [], written=leaves.take_written(state))[BUFFERS]
    return {name: type(each) for name, each in left.items()}, set(state.values)


@pytest.mark.parametrize("factor", [1.0, 2.0])
@pytest.mark.parametrize("counted", [True, False])
def test_a_trained_weight_that_the_step_writes_is_as_a_buffer(factor: float, counted: bool) -> None:
    def change(model: Any) -> None:
        weight = model.layer.weight
        (weight.detach() if counted else weight.data).mul_(factor)

    left, state = weights_after(change)
    assert left == ({"layer.weight": torch.Tensor} if factor != 1 else {})
    assert ("model.layer.weight" in state) is (factor == 1)
    assert "model.layer.bias" in state


def test_weights_that_share_a_path_are_told_apart() -> None:
    model: Any = nn.Module()
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    model.kinds = nn.ModuleList([one, other])
    lookup = {int: one, str: other}
    leaves = find_leaves(Workload(model))
    assert leaves.take_written(snapshot({"lookup": lookup})) == ()
    for each in (one, other):
        each.weight.data.mul_(2)
    written = leaves.take_written(snapshot({"lookup": lookup}))
    assert written == ("kinds.0.weight", "kinds.1.weight")
