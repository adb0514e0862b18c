"""Where jobs of this machine have their folders."""

import asyncio
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import pytest

from haversack_server import local_place
from haversack_server.gpus import attached, nvml
from haversack_server.gpus.attached import Attached
from haversack_server.gpus.nvml import Gpu, Use
from haversack_server.local_place import LocalPlace
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
    start = Start(job_id="a", device="cuda:0", deadline_ns=10**9, ranks=2)
    process = await LocalPlace().start(start)
    assert told == {"gpu": "GPU-a,GPU-b", "is_on_gpu": True}
    assert [(each.device, each.uuid) for each in process.gpus] == [
        ("cuda:0", "GPU-a"),
        ("cuda:1", "GPU-b"),
    ]
    del unused["GPU-b"]
    with pytest.raises(NotStartedError, match=r"cuda:1 .* is no more"):
        await LocalPlace().start(start)
