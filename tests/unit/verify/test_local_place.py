"""Where jobs of this machine have their folders."""

import asyncio
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import pytest

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
