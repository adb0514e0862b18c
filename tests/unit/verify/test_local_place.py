"""Where jobs of this machine have their folders."""

import asyncio
import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from haversack_server import local_place, processes
from haversack_server.gpus import attached, nvml
from haversack_server.gpus.attached import Attached
from haversack_server.gpus.nvml import Gpu, Use
from haversack_server.local_place import LocalPlace, LocalProcess
from haversack_server.places import Start
from haversack_server.processes import NotStartedError, Process


def test_a_home_that_was_tidied_away_is_made_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fork(place: LocalPlace, start: Start, limits: Mapping[str, Any]) -> Process:
        raise NotStartedError("there is no zygote")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(LocalPlace, "_fork", fork)
    place = LocalPlace()
    for _ in range(2):
        with pytest.raises(NotStartedError, match="no zygote"):
            asyncio.run(place.start(Start(job_id="a", device="cpu", deadline_ns=10**9)))
        (home,) = tmp_path.iterdir()
        shutil.rmtree(home)


@contextlib.contextmanager
def kept(now: list[list[str]], uuids: list[str]) -> Iterator[None]:
    now.append(uuids)
    yield
    now.remove(uuids)


async def test_a_job_is_told_its_gpus_by_their_uuids(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    told: dict[str, Any] = {}

    async def start_afresh(limits: Mapping[str, Any], gpu: str, parent: int | None) -> None:
        told.update(gpu=gpu, is_on_gpu=limits["gpu"])

    gpus = [Gpu(cuda_name=name, index=n, uuid=name) for n, name in enumerate(("GPU-a", "GPU-b"))]
    unused = {gpu.uuid: Use("DEFAULT", 0, ()) for gpu in gpus}
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(local_place, "start_afresh", start_afresh)
    monkeypatch.setattr(local_place, "attached_gpus", lambda: Attached(tuple(gpus)))
    monkeypatch.setattr(attached, "attached_gpus", lambda: Attached(tuple(gpus)))
    monkeypatch.setattr(nvml, "uses", lambda: unused)
    told["awake"] = []
    monkeypatch.setattr(nvml, "awake", lambda uuids: kept(told["awake"], list(uuids)))
    start = Start(job_id="a", device="cuda:0", deadline_ns=10**9, ranks=2)
    process = await LocalPlace().start(start)
    assert told.pop("awake") == [["GPU-a", "GPU-b"]]
    assert told == {"gpu": "GPU-a,GPU-b", "is_on_gpu": True}
    assert [(each.device, each.uuid) for each in process.gpus] == [
        ("cuda:0", "GPU-a"),
        ("cuda:1", "GPU-b"),
    ]
    del unused["GPU-b"]
    told["awake"] = []
    with pytest.raises(NotStartedError, match=r"cuda:1 .* is no more"):
        await LocalPlace().start(start)
    assert told["awake"] == []  # no longer


async def test_a_folder_with_too_much_or_too_many_is_said_to_be_overfilled(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_place, "_LOOK_S", 0.0)
    process: Any = None  # it is not asked
    (tmp_path / "large").write_bytes(bytes(100_000))
    full = LocalProcess(process, tmp_path, disk_bytes=50_000)
    assert "than the 48.83 KiB that a job may have" in await full.overfilled()
    roomy = LocalProcess(process, tmp_path, disk_bytes=10**9)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(roomy.overfilled(), 0.1)
    monkeypatch.setattr(local_place, "_MOST_ENTRIES", 0)
    assert "more than the 0 files and folders" in await roomy.overfilled()


def test_a_process_on_a_gpu_asks_for_gpus_in_the_way_that_its_copies_survive() -> None:
    on_a_gpu, on_the_cpu = processes._environment("GPU-a"), processes._environment("")
    assert on_a_gpu["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert on_a_gpu["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
    assert on_the_cpu["CUDA_VISIBLE_DEVICES"] == ""
