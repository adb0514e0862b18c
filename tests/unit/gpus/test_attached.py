"""Which GPUs a server has: through NVML, by device files without it, none where it fails."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import types
from typing import Any

import pytest
from tests import fake_nvml

from haversack_server.gpus import attached, nvml
from haversack_server.gpus.attached import GpuUnavailableError, find
from haversack_server.gpus.nvml import Found, Gpu, NvmlError, NvmlMissingError
from haversack_server.gpus.taking import listed, take

A, B = (
    Gpu(cuda_name=f"GPU-{x}", index=i, uuid=f"GPU-{x}", name=f"H{x}") for i, x in enumerate("ab")
)


def refusing(error: Exception) -> Any:
    def refuse() -> Any:
        raise error

    return refuse


@pytest.fixture
def files(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave two GPUs' files, and no NVML."""
    for name in ("nvidia10", "nvidia0", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(attached, "DEVICE_FILES", tmp_path)
    monkeypatch.setattr(nvml, "find", refusing(NvmlMissingError("nvidia-ml-py is not installed")))


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("allowed", "names"),
    [
        (None, ["0", "1"]), ("10", []), ("1", ["1"]), ("-1", []), ("", []),
        ("GPU-7, 0", ["GPU-7", "0"]), ("GPU-7,-1,0", ["GPU-7"]),
    ],
)  # fmt: skip
def test_without_nvml_the_drivers_files_are_gpus_and_that_is_said(
    allowed: str | None, names: list[str]
) -> None:
    found = find(allowed)
    assert [gpu.cuda_name for gpu in found.gpus] == names
    assert "found by /dev/nvidiaN, since nvidia-ml-py is not installed" in found.said[0]


@pytest.mark.usefixtures("files")
def test_a_job_on_a_gpu_without_nvml_has_that_in_its_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attached, "attached_gpus", lambda: find(None))
    (device,) = take(["cuda:1"])
    assert (device.device, device.uuid, device.memory_bytes) == ("cuda:1", "", None)
    assert "who else uses them" in device.notes[0]
    assert [each.device for each in listed()] == ["cuda:0", "cuda:1"]


def test_a_machine_without_either_has_no_gpu_and_nothing_to_say(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "DEVICE_FILES", tmp_path)
    monkeypatch.setattr(nvml, "find", refusing(NvmlMissingError("there is no libnvidia-ml.so.1")))
    assert str(find(None)) == "no GPU"


@pytest.mark.usefixtures("files")
def test_an_nvml_that_fails_leaves_no_gpu_and_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = NvmlError("NVML says: Driver/library version mismatch")
    monkeypatch.setattr(nvml, "find", refusing(failed))
    sentence = "no GPU; none is used, since NVML says: Driver/library version mismatch"
    assert str(find(None)) == sentence
    monkeypatch.setattr(attached, "attached_gpus", lambda: find(None))
    with pytest.raises(GpuUnavailableError, match=f"cuda:0 is not attached .* has {sentence}"):
        take(["cuda:0"])


def test_numbers_may_mean_other_gpus_where_models_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "find", lambda: Found((A, B), ()))
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    assert "fastest first" in find("1").said[0]
    assert find("GPU-b").said == find(None).said == ()
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert find("1").said == ()


def test_a_gpu_that_was_lost_since_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "find", lambda: Found((A, B), ()))
    monkeypatch.setattr(attached, "attached_gpus", lambda: find(None))
    monkeypatch.setattr(nvml, "uses", lambda: {"GPU-b": nvml.Use("DEFAULT", 2**20, ())})
    with pytest.raises(GpuUnavailableError, match=r"cuda:0 \(Ha, GPU-a\) is no more"):
        take(["cuda:0"])
    assert take(["cuda:1"])[0].notes == ()
    assert "is no more" in listed()[0].notes[0]
    monkeypatch.setattr(nvml, "uses", lambda: {"GPU-b": nvml.Use("DEFAULT", 2**30, ())})
    assert take(["cuda:1"])[0].notes[0].startswith("1.00 GiB of its memory are in use, by no proc")


def test_gpus_are_kept_awake_while_nvml_is_open_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def handle(uuid: str) -> None:
        told.append(uuid)
        if uuid == "GPU-lost":
            raise ValueError(uuid)

    library = types.SimpleNamespace(
        NVMLError=ValueError,
        nvmlInit=lambda: told.append("init"),
        nvmlShutdown=lambda: told.append("shutdown"),
        nvmlDeviceGetHandleByUUID=handle,
    )
    monkeypatch.setattr(nvml, "_library", lambda: library)
    with nvml.awake(["GPU-lost", "GPU-b"]):
        assert told == ["init", "GPU-lost", "GPU-b"]
    assert told[-1] == "shutdown"
    monkeypatch.setattr(nvml, "_library", refusing(NvmlMissingError("nvidia-ml-py is missing")))
    with nvml.awake(["GPU-b"]):
        assert len(told) == 4


def test_an_nvml_of_other_days_is_no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    old = types.ModuleType("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", old)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    with pytest.raises(NvmlMissingError, match="install nvidia-ml-py instead"):
        nvml.uses()


ASKED = """
import json, os, sys
from haversack_server.gpus import attached, taking
for scene in json.loads(sys.argv[1]):
    os.environ.update(scene)
    attached.attached_gpus.cache_clear()
    try:
        told = [[each.device, each.uuid, each.name, each.memory_bytes, *each.notes]
                for each in taking.take(["cuda:0"]) + taking.listed()]
    except attached.GpuUnavailableError as refused:
        told = str(refused)
    print(json.dumps(told))
    for name in scene:
        del os.environ[name]
assert "torch" not in sys.modules
"""


def told_of(scenes: list[dict[str, str]], folder: pathlib.Path) -> list[Any]:
    """Ask the real nvidia-ml-py of a library that tells each scene in turn."""
    without = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
    done = subprocess.run(
        [sys.executable, "-c", ASKED, json.dumps(scenes)],
        env=without | {
            "LD_LIBRARY_PATH": str(fake_nvml.build(folder)),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_real_library_is_asked_as_nvidias_header_says(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("pynvml", reason="needs nvidia-ml-py, of the extra server")
    used = {"FAKE_NVML_PID": str(os.getpid()), "FAKE_NVML_LOST": "1", "FAKE_NVML_MODE": "3"}
    scenes = [
        {},
        {"FAKE_NVML_GPUS": "2", "FAKE_NVML_MODE": "2"},
        {"FAKE_NVML_GPUS": "2", "FAKE_NVML_MIG": "0", "CUDA_VISIBLE_DEVICES": "1,0"},
        {"FAKE_NVML_GPUS": "3", **used},
    ]
    silent, prohibited, divided, in_use = told_of(scenes, tmp_path)
    assert silent == (
        "cuda:0 is not attached to this server, which has no GPU; none is used, since NVML says: "
        "Driver Not Loaded"
    )
    assert prohibited.startswith(
        "cuda:0 (Fake GPU, GPU-00000001-fake) is in compute mode PROHIBITED"
    )
    whole = ["cuda:0", "GPU-00000002-fake", "Fake GPU", 8 * 2**30]
    parts = [
        [f"cuda:{n}", f"MIG-000000{part}-fake", "Fake GPU MIG 1g.4gb", 4 * 2**30]
        for n, part in ((1, "64"), (2, "67"))
    ]
    assert divided == [whole, whole, *parts]
    taken, first, second = in_use
    assert taken == first
    assert f"process {os.getpid()} (" in taken[4]
    assert ") is on it, with 1.00 GiB of its memory" in taken[4]
    assert taken[5] == "its compute mode is EXCLUSIVE_PROCESS: another process cannot open it"
    assert second == ["cuda:1", "GPU-00000003-fake", "Fake GPU", 8 * 2**30]
