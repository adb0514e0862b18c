"""Small parts of the worker: losses, blocks, memory, names of regions, preparations."""

import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import nn  # noqa: E402

from haversack.run import BlockAction, WorkloadReference  # noqa: E402
from haversack.torch import Workload  # noqa: E402
from haversack.verify import VerifyPlan, VerifyRequest, VerifySchedule  # noqa: E402
from haversack_server.worker import blocks  # noqa: E402
from haversack_server.worker.errors import (  # noqa: E402
    BadWorkloadError,
    is_out_of_memory,
    raised_in,
)
from haversack_server.worker.leaves import find_leaves, roots  # noqa: E402
from haversack_server.worker.memory import LiveStorages  # noqa: E402
from haversack_server.worker.prepare import prepare  # noqa: E402
from haversack_server.worker.state import snapshot  # noqa: E402
from haversack_server.worker.step import Step, loss_of  # noqa: E402

REQUEST = VerifyRequest(workload=WorkloadReference(name="mlp"))
TWO = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("output", "loss", "said"),
    [
        (SimpleNamespace(loss=TWO.sum(), logits=TWO), 3.0, "loss of the output"),
        ({"loss": TWO.prod(), "logits": TWO}, 2.0, "loss of the output"),
        (TWO[1], 2.0, "scalar"),
        (TWO[:1], 1.0, "scalar"),
        (TWO, 3.0, "1 floating tensor"),
        ((TWO, [TWO.double(), torch.tensor([7])]), 6.0, "2 floating tensor"),
        (SimpleNamespace(loss=None, logits=TWO), 3.0, "1 floating tensor"),
        (torch.full((2,), 60000.0, dtype=torch.float16), 120000.0, "1 floating tensor"),
    ],
)
def test_without_a_loss_the_default_is_taken_and_said(output: Any, loss: float, said: str) -> None:
    found, words = loss_of(Workload(abs), output)
    assert found.item() == loss
    assert said in words


def test_the_own_loss_comes_first() -> None:
    found, words = loss_of(Workload(abs, loss=lambda out: out.prod()), TWO)
    assert (found.item(), words) == (2.0, "The workload's own loss was taken")


@pytest.mark.parametrize("output", [torch.tensor([1]), None, "text", {}])
def test_an_output_without_floating_tensors_is_no_workload(output: Any) -> None:
    with pytest.raises(BadWorkloadError, match="no floating tensor"):
        loss_of(Workload(abs), output)


def test_a_loss_that_is_no_scalar_is_no_workload() -> None:
    with pytest.raises(BadWorkloadError, match=r"a tensor of shape \(2,\)"):
        loss_of(Workload(abs, loss=lambda out: out), TWO)


def ordered(schedule: VerifySchedule) -> list[str]:
    order: list[str] = []
    weight = torch.ones(1, requires_grad=True)

    def model() -> Any:
        order.append("forward")
        return weight.sum()

    weight.register_hook(lambda _: order.append("backward"))
    optimizer: Any = SimpleNamespace(
        step=lambda: order.append("step"), zero_grad=lambda: order.append("zero")
    )
    callback = functools.partial(order.append, "callback")
    workload = Workload(model, optimizer=optimizer, between_forward_and_backward=callback)
    Step(workload, schedule).run()
    return order


@pytest.mark.parametrize(
    ("schedule", "order"),
    [
        (VerifySchedule.ONE_MICROBATCH, "forward callback backward"),
        (VerifySchedule.BACKWARD_IN_THREAD, "forward callback backward"),
        (VerifySchedule.TWO_MICROBATCHES, "forward forward callback backward backward"),
        (
            VerifySchedule.TWO_STEPS,
            "forward callback backward step zero forward callback backward",
        ),
    ],
)
def test_a_schedule_is_the_order_of_forwards_and_backwards(
    schedule: VerifySchedule, order: str
) -> None:
    assert ordered(schedule) == order.split()


@pytest.mark.parametrize("schedule", [each for each in VerifySchedule if each])
def test_what_a_workload_raises_is_kept_with_its_part(
    schedule: VerifySchedule, capsys: pytest.CaptureFixture[str]
) -> None:
    weight = torch.ones(1, requires_grad=True)

    def raises(gradient: Any) -> None:
        raise SystemExit("no")

    weight.register_hook(raises)
    step = Step(Workload(weight.sum), schedule)
    step.run()
    assert step.raised is not None
    assert (step.raised.part, step.raised.kind) == ("backward", "SystemExit")
    assert "SystemExit: no" in capsys.readouterr().err


class Tree(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(1, 1), nn.ReLU()])})
        self.layers = nn.ModuleList([nn.ModuleList([nn.Linear(1, 1)])])


def chosen(workload: Workload, *, makes_calls: bool = False, **fields: Any) -> tuple[str, ...]:
    request = VerifyRequest(workload=WorkloadReference(name="mlp"), **fields)
    return blocks.chosen(workload, request, makes_calls=makes_calls)


def test_blocks_are_what_is_called_in_the_outermost_module_lists() -> None:
    assert list(blocks.detected_blocks(Tree())) == [
        "encoder.layers.0",
        "encoder.layers.1",
        "layers.0.0",
    ]


def test_regions_come_from_the_request_the_workload_the_calls_or_the_blocks() -> None:
    tree = Workload(Tree(), regions=("layers.0.0",))
    assert chosen(tree, regions=("encoder.layers.0",)) == ("encoder.layers.0",)
    plan = VerifyPlan(
        actions=(
            BlockAction(block="encoder.layers.0", option="save"),
            BlockAction(block="encoder.layers.1", option="recompute"),
        )
    )
    assert chosen(tree, plan=plan) == ("encoder.layers.1",)
    assert chosen(tree, makes_calls=True) == ("layers.0.0",)
    assert chosen(Workload(Tree()), makes_calls=True) == ()
    assert len(chosen(Workload(Tree()))) == 3


def test_a_region_may_be_named_by_its_unique_ending() -> None:
    assert chosen(Workload(Tree()), regions=("layers.1",)) == ("encoder.layers.1",)
    with pytest.raises(BadWorkloadError, match=r"no module 'layers\.7'"):
        chosen(Workload(Tree()), regions=("layers.7",))
    with pytest.raises(BadWorkloadError) as unknown:
        chosen(Workload(Tree()), regions=("x" * 10**6,))
    assert len(str(unknown.value)) < 1000
    with pytest.raises(BadWorkloadError, match=r"'0' is ambiguous: encoder.layers.0, layers.0"):
        chosen(Workload(Tree()), regions=("0",))


def test_a_model_with_nothing_to_checkpoint_is_no_workload() -> None:
    with pytest.raises(BadWorkloadError, match="nothing to verify"):
        chosen(Workload(nn.Linear(1, 1)))
    with pytest.raises(BadWorkloadError, match="regions name modules"):
        chosen(Workload(abs), regions=("a",))
    none_named = Workload(Tree(), regions=())
    assert chosen(none_named, makes_calls=True) == ()
    with pytest.raises(BadWorkloadError, match="its list of regions is empty"):
        chosen(none_named)


def test_tensors_without_values_are_no_workload() -> None:
    leaves = find_leaves(Workload(nn.Linear(1, 1, device="meta")))
    with pytest.raises(BadWorkloadError, match="the device meta, which holds no values"):
        leaves.values([torch.ones(1, device="meta")], [])


def test_hooks_of_all_modules_are_of_every_workload() -> None:
    seen = [7]
    handle = nn.modules.module.register_module_forward_hook(lambda *_: seen.append(1))
    try:
        found = snapshot(roots(Workload(nn.Linear(1, 1)))).values
    finally:
        handle.remove()
    assert [said for name, said in found.items() if name.endswith(".seen[0]")] == ["7"]


def test_live_storages_count_what_operations_make_until_it_is_freed() -> None:
    given = torch.zeros(100)
    with LiveStorages() as live:
        made = given + 1
        view = made[:10]
        view.add_(1)
        given.mul_(2)
        assert live.live_bytes == 400
        more = made.double()
        assert live.live_bytes == 1200
        del more
        assert live.live_bytes == 400
        del made
        assert live.live_bytes == 400  # the view holds the storage
        del view
        assert (live.live_bytes, live.peak_bytes) == (0, 1200)


def test_saved_activations_are_live_until_backward() -> None:
    x = torch.ones(1000, requires_grad=True)
    with LiveStorages() as live:
        loss = x.exp().exp().sum()
        assert live.live_bytes == 2 * 4000 + 4
        loss.backward()
        assert live.live_bytes <= 4000 + 4
        assert live.peak_bytes <= 4 * 4000 + 8


def test_leaves_are_inputs_parameters_and_weights_in_closures() -> None:
    weight = torch.ones(1, requires_grad=True)
    generator = torch.Generator()
    x, fixed = torch.ones(1, requires_grad=True), torch.ones(1)

    def model(x: Any, y: Any) -> Any:
        return x * y * weight * torch.rand(1, generator=generator)

    leaves = find_leaves(Workload(model, (x, fixed), {"z": [weight * 2]}))
    assert list(leaves.inputs) == ["args[0]", "kwargs.z[0]"]
    assert list(leaves.parameters) == ["model.weight"]
    assert list(leaves.generators) == ["model.generator"]


def test_buffers_are_found_in_modules_that_are_none_of_the_models() -> None:
    listed, closed = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
    module: Any = nn.Sequential(nn.BatchNorm1d(1))
    module.more = [listed]
    leaves = find_leaves(Workload(module, loss=lambda out: closed(out).sum()))
    buffers = leaves.values([], [])["BUFFERS"]
    means = [name for name in buffers if name.endswith("mean")]
    assert means == ["0.running_mean", "loss.closed.running_mean", "model.more[0].running_mean"]


def test_a_cache_that_libraries_switch_off_is_off_in_every_run() -> None:
    module: Any = nn.Linear(1, 1)
    module.config = SimpleNamespace(use_cache=True)
    module.weight.grad = torch.ones(1, 1)
    _, notes = prepare(Workload(module), REQUEST)
    assert module.config.use_cache is False
    assert module.weight.grad is None
    assert len(notes) == 1


def test_a_torch_without_a_private_place_is_said_with_what_is_not_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert prepare(Workload(torch.nn.Linear(1, 1)), REQUEST)[1] == ()
    monkeypatch.delattr(torch.serialization, "_open_zipfile_writer_file")
    (said,) = prepare(Workload(torch.nn.Linear(1, 1)), REQUEST)[1]
    assert "has no _open_zipfile_writer_file: files that torch.save writes" in said


@pytest.mark.parametrize(
    ("error", "out"),
    [
        (MemoryError(), True),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:125] DefaultCPUAllocator: can't allocate memory"
            ),
            True,
        ),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_running_out_of_memory_is_told_from_other_errors(error: Exception, out: bool) -> None:
    assert is_out_of_memory(error) is out


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class _SpeechlessError(RuntimeError):
    def __str__(self) -> str:
        raise KeyboardInterrupt


def test_an_exception_that_has_no_text_is_told_by_its_kind() -> None:
    raised = raised_in("backward", _SpeechlessError())
    assert (raised.kind, raised.out_of_memory) == ("_SpeechlessError", False)
    assert raised.message == "its text cannot be had: KeyboardInterrupt"
