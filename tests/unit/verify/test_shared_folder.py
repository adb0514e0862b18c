"""The working folder that ranks share: as it was before each run, and looked at once."""

import pathlib

import pytest

pytest.importorskip("torch", reason="the worker needs the extra torch")

from haversack_server.verify.outcome import Outcome
from haversack_server.verify.ranks import RankOutcome, merged
from haversack_server.worker.effects import Effects
from haversack_server.worker.shared_folder import SharedFolder


def two_ranks() -> list[RankOutcome]:
    outcome = Outcome(stage="plain", state={"printed text": "0 characters"})
    return [RankOutcome(rank=rank, outcome=outcome) for rank in range(2)]


def test_every_run_of_ranks_finds_the_folder_as_the_factory_left_it(tmp_path: pathlib.Path) -> None:
    (tmp_path / "kept.txt").write_text("factory")
    shared = SharedFolder(tmp_path)
    told = []
    for _ in range(2):
        shared.put_back()
        assert [each.name for each in tmp_path.iterdir()] == ["kept.txt"]
        (tmp_path / "log1.txt").write_text("step")
        told.append(shared.looked_at(two_ranks()))
    assert told[0] == told[1]
    assert merged(told[0]).state == {
        "rank 0 printed text": "0 characters",
        "rank 1 printed text": "0 characters",
        "file log1.txt": "4 B 43b9fe3c",
    }


def test_a_folder_that_a_driver_writes_to_is_not_looked_at(tmp_path: pathlib.Path) -> None:
    shared = SharedFolder(tmp_path, is_looked_at=False)
    shared.put_back()
    (tmp_path / "cache").write_text("kernels")
    assert shared.looked_at(two_ranks()) == two_ranks()


def test_a_rank_does_not_take_files_of_others_for_its_own(tmp_path: pathlib.Path) -> None:
    with Effects(tmp_path, is_shared=True) as effects:
        (tmp_path / "log.txt").write_text("step")
    found = effects.values()
    assert "file log.txt" not in found
    assert found["file opened for writing: log.txt"] == "1 times"
