"""Measured steps: boundaries, allocators, and what comes of the figures."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="steps of PyTorch are measured")

import torch
from tests.integration.live_storages import LiveStorages
from torch import Tensor, nn

from haversack.basis import Basis
from haversack.errors import InvalidRequestError
from haversack.observed import Observed
from haversack.plan import MomentPeak, PeakAt, Plan
from haversack.profile import Profile
from haversack.requests import estimate_request
from haversack.torch import Measured, Workload, calibrate, measure
from haversack.torch.allocators import CudaReader
from haversack.torch.boundaries import told
from haversack.torch.optimizers import storage_bytes

ROWS, WIDTH, BLOCKS = 256, 32, 3
HIDDEN = 4 * ROWS * WIDTH


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Sigmoid()) for _ in range(BLOCKS)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def workload_of() -> Workload:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    return Workload(model, args=(torch.randn(ROWS, WIDTH),), optimizer=optimizer)


def step_of(workload: Workload) -> Callable[[], None]:
    def step() -> None:
        output = workload.model(*workload.args)
        output.sum().backward()
        optimizer: Any = workload.optimizer
        optimizer.step()
        optimizer.zero_grad()

    return step


def test_the_places_of_a_step_are_told_in_their_order() -> None:
    workload = workload_of()
    model: Any = workload.model
    places: list[tuple[str, str]] = []
    with told(model, dict(model.layers.named_children()), places.append):
        step_of(workload)()
    distinct = [place for i, place in enumerate(places) if place not in places[:i]]
    forward = [each for i in range(BLOCKS) for each in (f"{i}", f"(after {i})")]
    assert distinct == [
        *(("forward", name) for name in ("(before 0)", *forward)),
        # Nothing lies between these blocks, so a gradient goes from one to the other.
        *(("backward", name) for name in ("(after 2)", "2", "1", "0")),
        ("optimizer", ""),
    ]
    assert torch.autograd.backward.__name__ == "backward"
    places.clear()
    step_of(workload)()
    assert not places


def test_the_cpu_s_peak_is_that_of_live_storages_and_what_kernels_take() -> None:
    workload = workload_of()
    found = measure(workload, tokens=ROWS)
    model: Any = workload.model
    optimizer: Any = workload.optimizer
    states = [each for row in optimizer.state.values() for each in row.values()]
    known = [*model.parameters(), *workload.args, *states]
    tracker: Any = LiveStorages(known)
    with tracker:
        step_of(workload)()
    live = tracker.peak_bytes + storage_bytes(known)
    assert live <= found.peak_bytes < live + HIDDEN
    assert found.peak_at.phase in ("forward", "backward")
    assert found.reserved_bytes is None
    assert found.observed.basis is Basis.MEASURED
    # A later block's forward stands on what the earlier ones keep: tanh and sigmoid, each a tensor.
    peaks = {(phase, block): size for phase, block, size in found.observed.moments()}
    assert peaks["forward", "layers.2"] - peaks["forward", "layers.1"] == 2 * HIDDEN
    assert found.tokens_per_s == pytest.approx(ROWS * 1e9 / found.step_ns)
    assert (found.steps, found.device) == (3, "cpu")


def test_a_step_of_one_s_own_is_measured_with_its_model() -> None:
    workload = workload_of()
    model: Any = workload.model
    given = measure(step_of(workload), model=model, optimizer=workload.optimizer, steps=1)
    inputs = storage_bytes(workload.args)  # nobody has said that they are there
    assert given.peak_bytes == measure(workload, steps=1).peak_bytes - inputs
    with pytest.raises(InvalidRequestError, match="give model=") as error:
        measure(step_of(workload))
    assert error.value.field == "model"
    with pytest.raises(InvalidRequestError, match="the step never calls the model"):
        measure(lambda: None, model=model)
    with pytest.raises(InvalidRequestError, match="steps"):
        measure(workload, steps=0)


def test_figures_go_into_the_next_estimate() -> None:
    figures = measure(workload_of(), tokens=ROWS, steps=1)
    request = estimate_request(parameter_count=1, measurements=figures.measurements())
    whole, *phases = request.measurements
    assert whole.allocated_bytes == figures.peak_bytes
    assert whole.tokens_per_s == figures.tokens_per_s
    assert [each.phase for each in phases] == ["step 2 backward", "step 2 optimizer"]
    assert phases[0].allocated_bytes == figures.observed.of_phase("backward")


def test_a_plan_of_another_model_calibrates_no_profile() -> None:
    plan = Plan(model_fingerprint="other", predicted_peak_bytes=1)
    measured: Any = None  # which is not looked at
    with pytest.raises(InvalidRequestError, match="another model than the profile") as error:
        calibrate(Profile(model_fingerprint="own"), plan, measured)
    assert error.value.field == "plan.model_fingerprint"


def test_a_calibrated_profile_keeps_free_what_any_block_needed_beyond_its_prediction() -> None:
    def moments(*sizes: int) -> tuple[MomentPeak, ...]:
        places = (("forward", "a"), ("forward", "b"), ("backward", "a"), ("optimizer", ""))
        return tuple(
            MomentPeak(phase=phase, block=block, peak_bytes=size)
            for (phase, block), size in zip(places, sizes, strict=True)
        )

    seen = moments(67, 104, 95, 80)
    plan = Plan(predicted_peak_bytes=100, moments=moments(60, 100, 90, 60))
    observed = Observed(
        phase=("forward", *(each.phase for each in seen)),
        block=("(between)", *(each.block for each in seen)),  # of which nothing was predicted
        peak_bytes=(99, *(each.peak_bytes for each in seen)),
        basis=Basis.MEASURED,
    )
    measured = Measured(
        observed=observed, peak_bytes=104, peak_at=PeakAt(), reserved_bytes=None, step_ns=1,
        steps=1, tokens_per_s=None, device="cpu",
    )  # fmt: skip
    found = calibrate(Profile(workspace_bytes=3, optimizer_step_bytes=5), plan, measured)
    # 7 bytes more are kept free all the time; the optimizer's step needs 13 beside them.
    assert (found.workspace_bytes, found.optimizer_step_bytes) == (10, 18)
    # Its blocks ran where they ran, whatever the step was measured on.
    assert (found.basis, found.device) == (Basis.MEASURED, "")


def test_a_step_below_its_prediction_leaves_the_profile_s_basis_and_its_notes() -> None:
    moment = MomentPeak(phase="forward", block="a", peak_bytes=100)
    plan = Plan(predicted_peak_bytes=100, moments=(moment,))
    observed = Observed(phase=("forward",), block=("a",), peak_bytes=(90,), basis=Basis.MEASURED)
    measured = Measured(
        observed=observed, peak_bytes=90, peak_at=PeakAt(), reserved_bytes=None, step_ns=1,
        steps=1, tokens_per_s=None, device="NVIDIA H200",
    )  # fmt: skip
    profile = Profile(basis=Basis.PROFILED, device="cpu", notes=("of the profiler",))
    found = calibrate(profile, plan, measured)
    assert replace(found, notes=()) == replace(profile, notes=())
    first, said = found.notes
    assert first == "of the profiler"
    assert said.endswith("the step, 90 B of 100 B predicted")
    assert calibrate(found, plan, measured) == found  # said once


@pytest.fixture
def statistics(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The statistics of a CUDA allocator that is not there."""
    now = SimpleNamespace(allocated=0, peak=0, reserved=0)

    def reset(device: Any) -> None:
        now.peak = now.allocated

    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: now.peak)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: now.reserved)
    return now


def test_cuda_s_peak_is_read_and_reset_at_every_boundary(statistics: SimpleNamespace) -> None:
    reader = CudaReader(torch.device("cuda", 0))

    def allocate(now: int, peak: int) -> None:
        statistics.allocated, statistics.peak = now, max(statistics.peak, peak)
        statistics.reserved = max(statistics.reserved, 2 * peak)

    def step() -> None:
        allocate(10, 10)
        reader.moved(("forward", "a"))
        allocate(20, 50)
        reader.moved(("backward", "a"))
        allocate(5, 30)
        reader.moved(("forward", "a"))
        allocate(5, 40)

    reader.run(step)
    assert reader.peaks == {("forward", "a"): 50, ("backward", "a"): 30}
    assert reader.reserved_bytes() == 100
