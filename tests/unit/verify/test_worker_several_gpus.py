"""What a run does with several GPUs: it moves nothing to them, and adds their memory up."""

from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the worker needs the extra torch")

from torch import nn  # noqa: E402

from haversack.run import WorkloadReference  # noqa: E402
from haversack.torch import Workload  # noqa: E402
from haversack.verify import VerifyRequest  # noqa: E402
from haversack_server.worker.prepare import pinned, prepare, run_devices  # noqa: E402
from haversack_server.worker.watch import MemoryWatch  # noqa: E402

ONE = VerifyRequest(workload=WorkloadReference(name="mlp"), device="cuda:0")
TWO = replace(ONE, device_count=2)


def test_a_run_has_the_devices_that_were_asked_for() -> None:
    named = [list(map(str, run_devices(each))) for each in (ONE, TWO, replace(ONE, device=""))]
    assert named == [["cuda:0"], ["cuda:0", "cuda:1"], ["cpu"]]


def test_a_model_on_several_gpus_stays_where_its_factory_put_it() -> None:
    # "meta" stands for a device of the factory's choice; a move off it raises.
    model = nn.Linear(2, 2, device="meta")
    workload, notes = prepare(Workload(model, (torch.ones(1),)), TWO)
    assert (workload.model, workload.args[0].device.type) == (model, "cpu")
    assert any("among 2 GPUs itself" in note for note in notes)


class Allocators:
    """The allocators of two GPUs: what is live there, and the most that was."""

    def __init__(self) -> None:
        self.live, self.peak = [1, 10], [100, 1000]

    def synchronize(self, device: Any) -> None: ...

    def reset_peak_memory_stats(self, device: Any) -> None:
        self.peak[device.index] = self.live[device.index]

    def memory_allocated(self, device: Any) -> int:
        return self.live[int(device.index)]

    def max_memory_allocated(self, device: Any) -> int:
        return self.peak[int(device.index)]


def test_memory_of_several_gpus_is_a_sum_beyond_what_was_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allocators = Allocators()
    monkeypatch.setattr("haversack_server.worker.watch.torch.cuda", allocators)
    memory = MemoryWatch(run_devices(TWO))
    with memory.around():
        allocators.live, allocators.peak = [4, 30], [6, 50]
        memory.before_backward()
        memory.finish()
    assert (memory.retained_bytes, memory.peak_bytes) == (3 + 20, 5 + 40)


def test_a_run_on_a_gpu_says_what_its_libraries_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    monkeypatch.setenv("AWS_SECRET", "never")
    *_, versions, variables = pinned(ONE)
    assert versions.startswith("CUDA ")
    assert "CUBLAS_WORKSPACE_CONFIG=:4096:8" in variables
    assert "NVIDIA_TF32_OVERRIDE=0" in variables
    said = "".join(pinned(replace(ONE, device="cpu")))
    assert "never" not in variables
    assert "CUBLAS" not in said
