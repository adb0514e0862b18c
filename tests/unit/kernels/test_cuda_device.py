"""Which device is attached, as NVML would say; and that asking loads next to nothing."""

import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from haversack_kernels.cuda import Device, attached, device

ROOT = Path(__file__).parents[3]


class Nvml(ModuleType):
    """Two devices that answer as ``pynvml`` does."""

    class NVMLError(Exception):
        """What NVML raises."""

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.__spec__ = ModuleSpec("pynvml", None)
        self.open = 0

    def nvmlInit(self) -> None:  # noqa: N802
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index > 1:
            raise self.NVMLError
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> int:  # noqa: N802
        return {b"GPU-zero": 0, b"GPU-one": 1}[uuid]

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:  # noqa: N802
        return b"card one" if handle else "card zero"  # old versions answer in bytes

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=141 << 30, free=140 << 30)

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:  # noqa: N802
        return (9, 0)

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.159.04"


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    fake = Nvml()
    numba_cuda = ModuleType("numba_cuda")
    numba_cuda.__spec__ = ModuleSpec("numba_cuda", None)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setitem(sys.modules, "numba_cuda", numba_cuda)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    return fake


def test_the_first_device_is_described(nvml: Nvml) -> None:
    assert device() == Device("card zero", (9, 0), 141 << 30, 140 << 30, "580.159.04")
    assert nvml.open == 0


@pytest.mark.parametrize("visible", ["1", "GPU-one", " 1 ,0"])
def test_the_first_visible_device_is_meant(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = device()
    assert found is not None
    assert found.name == "card one"


@pytest.mark.parametrize("visible", ["", "-1", "7"])
def test_no_visible_device_is_none(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, visible: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert device() is None
    assert nvml.open == 0


def test_the_simulator_is_no_device(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    assert device() is None


def test_without_a_driver_there_is_none(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise nvml.NVMLError

    monkeypatch.setattr(nvml, "nvmlInit", refuse)
    assert device() is None


def test_without_numba_cuda_there_is_none(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached, "_installed", lambda module: module != "numba_cuda")
    assert device() is None


def test_asking_for_the_device_loads_no_numba() -> None:
    program = (
        "import sys; from haversack_kernels import cuda; cuda.device(); "
        "cuda.memory_needed(1, 1, 'int32'); print('numba' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT / "kernels")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False"]
